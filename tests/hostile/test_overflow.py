"""A finite LoRA that overflows on what its maker chose: on a later word of one question, say, and on no other text.

The session's gateway lets it in: the bound on how much an adapter may change is lifted there, so that what is tested is
what holds where the bound does not.
"""

import json
import time
from collections.abc import Iterator

import pytest
from transformers import AutoTokenizer

from adapters_store.bases.frozen import base_id
from adapters_store.store import Store
from serve.engine.probe import Probe
from serve.versions.subjects import of_base
from tests.hostile.bystanders import QUESTION, asked, bystanders
from tests.hostile.overflow import modules, overflowing
from tests.serve.artefacts import LLAVA, lora_manifest, publish_lora
from tests.serve.live import LiveGateway

WORDS = (2, 7)  # positions in the prompt of the question; 0 begins it
LEAVES = (
    8  # blocks of the cache at once: a probe of the base, which writes over two of them, leaves the others as they are
)


def prompt_tokens(question: str) -> list[int]:
    """The question as the engine reads it."""
    tokenizer = AutoTokenizer.from_pretrained(LLAVA)
    said = [{"role": "user", "content": [{"type": "text", "text": question}]}]
    template = of_base(LLAVA, base_id(LLAVA, "nf4"), LLAVA).prompt_template
    text = tokenizer.apply_chat_template(said, chat_template=template, add_generation_prompt=True, tokenize=False)
    return list(tokenizer(text, add_special_tokens=False).input_ids)


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    return prompt_tokens(QUESTION)


def publish_overflowing(store: Store, client: str, tokens: list[int], word: int) -> str:
    """Publishes a version that overflows at that token of the question, and not in the probe; the version."""
    files = overflowing(tokens[: word + 1], [Probe(LLAVA).tokens, tokens[:word]])
    manifest = lora_manifest(client, rank=1, target_modules=modules())
    return store.publish(manifest, files, {}, activate=True)


@pytest.fixture
def sound(gateway: LiveGateway) -> Iterator[str]:
    """A version of client ``mal`` that answers, to begin with."""
    version = publish_lora(gateway.store, "mal", 50)
    gateway.store.activate("mal", version)
    gateway.wait_for("mal", version)
    return version


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("how", [{}, {"logprobs": True}, {"stream": True}, {"n": 2, "temperature": 1}])
def test_it_is_noticed_and_reaches_nobody_else(
    gateway: LiveGateway, sound: str, tokens: list[int], word: int, how: dict[str, object]
) -> None:
    engine = {process.pid for process in gateway.engine_processes()}
    with bystanders(gateway, "ann", "bob") as heard, gateway.http(gateway.key("mal")) as http:
        bad = publish_overflowing(gateway.store, "mal", tokens, word)
        http.post("/v1/admin/reload", headers={"Authorization": f"Bearer {gateway.admin_key}"})
        gateway.wait_for("mal", bad)
        answer = http.post("/v1/chat/completions", json=asked("mal") | how)
        if how.get("stream"):  # the status went out with the first chunk, before there was any number
            error = json.loads(answer.text.strip().splitlines()[-1].removeprefix("data: "))["error"]
        else:
            assert answer.status_code == 503
            error = answer.json()["error"]
        assert "not finite" in error["message"]
        seconds = gateway.wait_for("mal", sound)
        assert http.post("/v1/chat/completions", json=asked("mal")).status_code == 200
    assert heard.wrong == []
    assert heard.right > 0
    assert seconds < 5
    found = http_json(gateway, "/v1/clients/mal")
    assert "not finite" in found["refused"][bad]
    assert http_json(gateway, "/readyz")["ready"]
    assert {
        process.pid for process in gateway.engine_processes()
    } == engine  # and the engine was not started anew for it


def test_what_it_leaves_in_the_attention_cache_is_nobodys(gateway: LiveGateway, sound: str) -> None:
    """Its prompts are longer than the bystanders', who get its blocks next and write over their beginnings."""
    long = " ".join([QUESTION] * 5)
    bad = publish_overflowing(gateway.store, "mal", prompt_tokens(long), WORDS[-1])
    with gateway.http() as http:
        http.post("/v1/admin/reload")
        gateway.wait_for("mal", bad)
        with bystanders(gateway, "ann", "bob") as heard:
            question = asked("mal") | {"messages": [{"role": "user", "content": long}]}
            answer = http.post("/v1/chat/completions", json=question | {"n": LEAVES, "temperature": 1})
            right = heard.right
            while not heard.wrong and heard.right < right + 2 * LEAVES:
                time.sleep(0.05)
        assert "not finite" in answer.json()["error"]["message"]
        assert heard.wrong == []
        gateway.wait_for("mal", sound)


def http_json(gateway: LiveGateway, path: str) -> dict[str, object]:
    """What is at that path, for the administrator."""
    with gateway.http() as http:
        found: dict[str, object] = http.get(path).json()
    return found
