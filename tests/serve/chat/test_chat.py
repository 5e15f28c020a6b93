"""Conversations with the real engine: by OpenAI's own client, streamed or not, mixed, refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import openai
import pytest

from serve.http.auth import Keys, digest_of
from tests.serve.artefacts import LLAVA
from tests.serve.live import LiveGateway, data_url, noise
from tests.serve.parity import check_but_for_ties

QUESTION = "what color is the circle?"


def picture(image: np.ndarray) -> dict[str, Any]:
    """An image part."""
    return {"type": "image_url", "image_url": {"url": data_url(image)}}


def text(words: str) -> dict[str, Any]:
    """A text part."""
    return {"type": "text", "text": words}


def user(*parts: Any) -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": list(parts)}


@pytest.fixture(scope="module")
def ann(gateway: LiveGateway) -> openai.OpenAI:
    """OpenAI's client with a key for ann."""
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.key("ann"), max_retries=0)


def test_the_openai_client_lists_models(ann: openai.OpenAI) -> None:
    assert [model.id for model in ann.models.list()] == ["ann", "global", "base"]
    assert ann.models.retrieve("ann").owned_by == "fedtailor"


def test_the_openai_client_gets_an_answer(gateway: LiveGateway, ann: openai.OpenAI) -> None:
    live = gateway.store.live("ann")
    assert live is not None
    raw = ann.chat.completions.with_raw_response.create(
        model="ann", messages=[user(picture(noise(0)), text(QUESTION))], max_tokens=12, user="somebody"
    )
    answer = raw.parse()
    assert answer.model == f"ann@{live.version}"
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 12
    base = gateway.store.artefact("ann", live.version).manifest.base.id
    assert answer.model_extra == {"fedtailor": {"client": "ann", "version": live.version, "base": base}}
    for name, value in (("client", "ann"), ("version", live.version), ("base", base)):
        assert raw.headers[f"x-fedtailor-{name}"] == value


def test_the_openai_client_streams_the_same(ann: openai.OpenAI) -> None:
    messages = [user(picture(noise(1)), text(QUESTION))]
    whole = ann.chat.completions.create(model="ann", messages=messages, max_tokens=12)
    stream = ann.chat.completions.create(
        model="ann", messages=messages, max_tokens=12, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert {chunk.model for chunk in chunks} == {whole.model}
    assert sum(bool(chunk.choices) for chunk in chunks) > 2  # it came in pieces


def test_greedy_is_the_default_and_sampling_is_possible(gateway: LiveGateway) -> None:
    greedy = [gateway.ask("ann", QUESTION)["choices"][0]["message"]["content"] for _ in range(2)]
    assert greedy[0] == greedy[1]
    seeded = [gateway.ask("ann", QUESTION, temperature=1.5, seed=s, n=2)["choices"] for s in (1, 1, 2)]
    said = [[choice["message"]["content"] for choice in choices] for choices in seeded]
    assert said[0] == said[1]
    assert said[0] != said[2]


def test_several_answers_are_drawn_where_no_temperature_is_given(gateway: LiveGateway) -> None:
    choices = gateway.ask("ann", QUESTION, n=3, seed=1)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in choices}) > 1


def test_the_openai_client_sends_its_own_answers_back(ann: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "ann", "max_tokens": 6}
    messages: list[Any] = [user(picture(noise(0)), text(QUESTION))]
    first = ann.chat.completions.create(messages=messages, **asked).choices[0].message
    for sent in (first, first.model_dump(), first.to_dict()):
        again = ann.chat.completions.create(messages=[*messages, sent, user(text("and its size?"))], **asked)
        assert again.choices[0].message.role == "assistant"
    with ann.chat.completions.stream(messages=messages, **asked) as stream:
        for _ in stream:
            pass
        streamed = stream.current_completion_snapshot.choices[0].message  # the final one must not be cut short
    assert streamed.content == first.content
    for sent in (streamed, streamed.model_dump()):
        ann.chat.completions.create(messages=[*messages, sent, user(text("and its size?"))], **asked)


def test_a_stream_ends_where_its_key_is_taken_away(gateway: LiveGateway) -> None:
    keys = Keys(gateway.store.root)
    key = keys.add(["ann"])
    body = {"model": "ann", "messages": [user(text(QUESTION))], "max_tokens": 400, "stream": True, "temperature": 2}
    with gateway.http(key) as http, http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        assert '"content"' in next(lines)
        keys.remove(digest_of(key))
        said = [line for line in lines if line]
    assert len(said) < 300
    assert json.loads(said[-1].removeprefix("data: "))["error"]["code"] == "invalid_api_key"


def test_images_and_their_order_matter(gateway: LiveGateway) -> None:
    def says(*parts: Any) -> list[int]:
        body = {"model": "ann", "messages": [user(*parts)], "max_tokens": 16, "return_token_ids": True}
        with gateway.http() as http:
            tokens: list[int] = http.post("/v1/chat/completions", json=body).json()["choices"][0]["token_ids"]
        return tokens

    black, white = np.zeros((64, 64, 3), np.uint8), np.full((64, 64, 3), 255, np.uint8)
    one, other = picture(black), picture(white)
    assert says(one, text(QUESTION)) == says(one, text(QUESTION))
    different = [says(text(QUESTION)), says(one, text(QUESTION)), says(one, other, text(QUESTION)),
                 says(other, one, text(QUESTION))]  # fmt: skip
    assert len({tuple(tokens) for tokens in different}) > 2


def test_a_full_context_ends_the_answer_and_is_no_error(gateway: LiveGateway) -> None:
    config = json.loads((LLAVA / "config.json").read_text())
    context, one = config["text_config"]["max_position_embeddings"], config["image_seq_length"]
    images = [picture(noise(seed)) for seed in range(min((context - 40) // one, 8))]
    with gateway.http() as http:
        body = {"model": "ann", "messages": [user(*images, text(QUESTION))]}
        answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["total_tokens"] <= context


def test_prompt_tokens_are_those_of_the_template(gateway: LiveGateway) -> None:
    """No token twice (the beginning of text), none missing, and as many as the model wants for each image."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(LLAVA)
    messages = [
        user(picture(noise(0)), text("what?")),
        {"role": "assistant", "content": "a red circle"},
        user(picture(noise(1)), text("and this?")),
    ]
    plain = [
        {"role": "user", "content": [{"type": "image"}, text("what?")]},
        {"role": "assistant", "content": [text("a red circle")]},
        {"role": "user", "content": [{"type": "image"}, text("and this?")]},
    ]
    prompt = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
    side = json.loads((LLAVA / "config.json").read_text())["image_seq_length"]
    expected = len(tokenizer(prompt, add_special_tokens=False).input_ids) + 2 * (side - 1)
    with gateway.http() as http:
        body = {"model": "ann", "messages": messages, "max_tokens": 4}
        usage = http.post("/v1/chat/completions", json=body).json()["usage"]
    assert usage["prompt_tokens"] == expected


def test_mixed_traffic_equals_each_alone(gateway: LiveGateway) -> None:
    """The base among adapters too: without an adapter of its own its rows would read somebody else's (CPU build)."""

    def says(job: tuple[str, int]) -> list[int]:
        model, seed = job
        answer = gateway.ask(model, QUESTION, noise(seed), return_token_ids=True)
        assert answer["fedtailor"]["client"] == model
        tokens: list[int] = answer["choices"][0]["token_ids"]
        return tokens

    jobs = [(model, seed) for seed in range(3) for model in ("ann", "bob", "global", "base")]
    alone = [says(job) for job in jobs]
    with ThreadPoolExecutor(len(jobs)) as threads:
        together = list(threads.map(says, jobs))
    for (model, seed), found, wanted in zip(jobs, together, alone, strict=True):
        check_but_for_ties(gateway, model, (noise(seed), QUESTION), found, wanted)
    assert len({tuple(tokens) for tokens in alone[:4]}) == 4  # the four do differ


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": ""}]}, "is empty"),
        ({"messages": [{"role": "user", "content": "  \n"}]}, "is empty"),
        ({"messages": [{"role": "user", "content": []}]}, "is empty"),
        ({"messages": [user(text("a")), {"role": "assistant", "content": "b"}]}, "must be from 'user'"),
        ({"messages": [user({"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}})]}, "data URL"),
        (
            {"messages": [user({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}})]},
            "not an image",
        ),
        ({"messages": [user(text("<image> what?"))]}, "reserved"),
        ({"messages": [user({"type": "image_embeds", "image_embeds": "AAAA"})]}, "image_embeds"),
        ({"messages": [user(picture(noise(0)) | {"uuid": "x"}, text("what?"))]}, "uuid"),
        ({"messages": [user(*[picture(noise(0))] * 9)]}, "9 images"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "role"),
        ({"cache_salt": "x"}, "'cache_salt' is not supported"),
        ({"mm_processor_kwargs": {}}, "'mm_processor_kwargs' is not supported"),
        ({"media_io_kwargs": {}}, "'media_io_kwargs' is not supported"),
        ({"prompt_embeds": "AAAA"}, "'prompt_embeds' is not supported"),
        ({"lora_path": "/etc"}, "'lora_path' is not supported"),
        ({"chat_template": "{{ 1 }}"}, "'chat_template' is not supported"),
        ({"tools": []}, "'tools' is not supported"),
        ({"priority": 1}, "'priority' is not supported"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"messages": [user(text("circle " * 2000))]}, "14000 characters: at most"),  # said before it is tokenised
        ({"messages": [user(text("a b " * 300))]}, "maximum context length"),
        ({"max_tokens": 513}, "at most 512"),
        ({"messages": [user(text("<ima"), text("ge> what?"))]}, "reserved"),
        ({"n": 2, "temperature": 0}, "at temperature 0"),
    ],
)
def test_requests_at_fault_are_400(gateway: LiveGateway, change: dict[str, Any], reason: str) -> None:
    body = {"model": "ann", "messages": [user(text("what?"))]} | change
    for stream in (False, True):
        with gateway.http(gateway.key("ann")) as http:
            answer = http.post("/v1/chat/completions", json=body | {"stream": stream})
        assert answer.status_code == 400, answer.text
        assert reason in answer.json()["error"]["message"]


def test_the_openai_client_raises_its_own_errors(gateway: LiveGateway, ann: openai.OpenAI) -> None:
    messages = [user(text("what?"))]
    with pytest.raises(openai.NotFoundError):
        ann.chat.completions.create(model="nobody", messages=messages)
    with pytest.raises(openai.NotFoundError):
        ann.chat.completions.create(model="ann@0123456789abcdef", messages=messages)
    for model in ("bob", f"bob@{gateway.store.versions('bob')[0]}"):  # not this key's: as if there were none
        with pytest.raises(openai.NotFoundError, match="not among those this key opens"):
            ann.chat.completions.create(model=model, messages=messages)
    with pytest.raises(openai.BadRequestError):
        ann.chat.completions.create(model="cat", messages=messages, extra_headers=admin(gateway))
    stranger = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="ft-wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(model="ann", messages=messages)


def admin(gateway: LiveGateway) -> dict[str, str]:
    """The admin's header."""
    return {"Authorization": f"Bearer {gateway.admin_key}"}
