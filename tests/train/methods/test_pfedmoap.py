"""pFedMoAP's own: who is sent which prompts, what stays at home, and its corner cases, on the real loop."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from adapters_store.personal.gate import pool
from adapters_store.personal.heads import MixtureHead, make_head
from adapters_store.personal.prompt import PromptedText
from adapters_store.personal.tensor_cache import TensorCache
from adapters_store.store import Store
from tests.floats import CLIP_LOGITS, check_close
from tests.serve.in_process import classify, serving
from tests.train.small import config, federation
from train.methods.contract import ClientInfo, ServerContext, Turn, Update
from train.methods.pfedmoap import POOL, PFedMoAP, PFedMoAPOptions
from train.models.clip import MixtureClassifier, PromptClassifier, ResidentClip
from train.models.feature_cache import MIB
from train.publish.versions import publish
from train.tensors import Tensors, read, to_bytes

pytestmark = pytest.mark.numeric

CLIENTS = [ClientInfo(f"c{i}", 1, ("star", "ring")) for i in range(5)]
CONTEXT = ServerContext(None, CLIENTS, 7, 1, 0)  # type: ignore[arg-type]


def method(**options: Any) -> PFedMoAP:
    return PFedMoAP(PFedMoAPOptions(**options))


def prompt(value: float) -> Tensors:
    return {"prompt": torch.full((2, 3), value)}


def server(one: PFedMoAP, values: list[float], context: ServerContext = CONTEXT) -> Tensors:
    """The server's state after clients c0, c1, … sent prompts of these values."""
    updates = [Update(f"c{i}", 1, prompt(value)) for i, value in enumerate(values)]
    return one.combine({**prompt(0.0), "draw": torch.tensor(5)}, updates, context)


def sent(one: PFedMoAP, state: Tensors, client: int) -> list[float]:
    """The values of the non-local prompts in a client's parcel, in its order."""
    others = one.parcel(state, CLIENTS[client]).get("others")
    return [] if others is None else [float(other[0, 0]) for other in others]


def test_each_client_is_sent_the_prompts_nearest_to_its_own() -> None:
    state = server(method(), [0.0, 1.0, 1.5, 4.0])
    assert sent(method(experts=2), state, 0) == [1.0, 1.5]
    assert sent(method(experts=2), state, 1) == [1.5, 0.0]
    assert sent(method(experts=1), state, 3) == [1.5]
    assert float(method().parcel(state, CLIENTS[0])["prompt"][0, 0]) == pytest.approx(6.5 / 4)


def test_more_experts_than_prompts_sends_all_others() -> None:
    assert sent(method(experts=9), server(method(), [0.0, 1.0, 1.5]), 2) == [1.0, 0.0]


def test_equally_near_prompts_come_in_client_order_and_equal_ones_are_no_trouble() -> None:
    state = server(method(), [0.0, 1.0, -1.0, 0.0])
    assert sent(method(), state, 0) == [0.0, 1.0, -1.0]
    assert sent(method(), state, 3) == [0.0, 1.0, -1.0]


def test_who_never_took_part_or_is_alone_is_sent_the_mean_only() -> None:
    assert method().parcel(server(method(), [0.0, 1.0]), CLIENTS[4]).keys() == {"prompt"}
    assert method().parcel(server(method(), [2.0]), CLIENTS[0]).keys() == {"prompt"}


def test_the_pool_keeps_the_last_prompt_of_clients_that_pause() -> None:
    one = method()
    state = one.combine(server(one, [0.0, 1.0, 2.0]), [Update("c0", 1, prompt(5.0))], CONTEXT)
    assert sent(one, state, 1) == [2.0, 5.0]
    assert float(state["prompt"][0, 0]) == 5.0


def test_random_selection_is_drawn_anew_each_round_from_the_seed() -> None:
    one, values = method(experts=2, selection="random"), [0.0, 1.0, 2.0, 3.0, 4.0]
    rounds = [server(one, values, ServerContext(None, CLIENTS, 7, r, 0)) for r in range(12)]  # type: ignore[arg-type]
    drawn = [tuple(sent(one, state, 0)) for state in rounds]
    assert drawn == [tuple(sent(one, state, 0)) for state in rounds]
    assert len(set(drawn)) > 3
    assert {value for pair in drawn for value in pair} == {1.0, 2.0, 3.0, 4.0}
    assert any(sent(one, state, 1) != sent(one, state, 2) for state in rounds)


def run(clip: ResidentClip, folder: Path, **sections: Any) -> tuple[Any, dict[str, Any]]:
    loop, _ = federation(config("pfedmoap", evaluate={"references": []}, **sections), clip, folder)
    endings, _ = loop.run()
    return loop, {client: load(ending.artefact.files["prompt.safetensors"]) for client, ending in endings.items()}


def test_the_gate_starts_with_the_second_turn_and_never_leaves(clip: ResidentClip, tmp_path: Path) -> None:
    """Byte by byte: over all rounds a client's upload is its prompt, and none of its bytes are the gate's."""
    loop, _ = federation(config("pfedmoap", federation={"rounds": 3}), clip, tmp_path)
    committed = None
    for number in (1, 2, 3):
        committed = loop._round(number, committed)
        for client in loop.clients:
            folder = tmp_path / "exchange" / f"train-{number:04d}-0"
            up, down = (folder / way / f"{client.id}.safetensors" for way in ("up", "down"))
            assert load(up.read_bytes()).keys() == {"prompt"}
            assert load(down.read_bytes()).keys() == ({"prompt"} if number == 1 else {"prompt", "others"})
            state = committed.client(client.id)
            assert state is not None
            gate = {name: tensor for name, tensor in state.items() if name.startswith("gate.")}
            assert len(gate) == 8
            untrained = loop.method.enrol(clip, client, loop.seed)
            trained = any(not torch.equal(gate[name], untrained[name]) for name in gate)
            assert trained == (number > 1)
            for tensor in gate.values():
                if tensor.count_nonzero():
                    assert tensor.numpy().tobytes() not in up.read_bytes()
        assert not [name for name in committed.server if "gate" in name]


def test_gates_differ_between_clients(clip: ResidentClip) -> None:
    ann, bob = (method().enrol(clip, ClientInfo(name, 1), 7) for name in ("ann", "bob"))
    assert not torch.equal(ann["gate.query.weight"], bob["gate.query.weight"])


def test_what_trained_last_is_published_with_what_it_was_trained_with(clip: ResidentClip, tmp_path: Path) -> None:
    loop, artefacts = run(clip, tmp_path)
    last = read(tmp_path / "exchange" / "personal-0003-0" / "down" / "client-00.safetensors")
    own = loop.checkpoints.latest().client("client-00")
    kept = artefacts["client-00"]
    assert torch.equal(kept["prompt"], own["prompt"])
    assert not torch.equal(kept["prompt"], last["prompt"])  # not the mean that came after it
    assert kept["others"].shape == (1, 4, 128)
    head = make_head(clip.clip, kept, loop.clients[0].class_names, "{class}.")
    assert isinstance(head, MixtureHead)
    built = loop.method.build(clip, loop.clients[0], own, None)
    assert isinstance(built, MixtureClassifier)
    images = clip.features(loop.backend.site.clients["client-00"].test)
    with torch.no_grad():
        check_close(head.logits(images), built.head().logits(images), CLIP_LOGITS)


def test_the_own_prompt_counts_as_the_options_say_in_training_too(clip: ResidentClip) -> None:
    """λ: what is trained, what is evaluated and what is published mix alike."""
    one, info = method(mixing=0.2), CLIENTS[0]
    start = PFedMoAP(PFedMoAPOptions()).initial(clip, CLIENTS, 7)
    others = start["prompt"] + torch.randn(2, *start["prompt"].shape, generator=torch.Generator().manual_seed(1))
    state = {**one.enrol(clip, info, 7), "prompt": start["prompt"], "others": others}
    images = torch.nn.functional.normalize(torch.randn(5, clip.clip.joint_width), dim=-1)
    for turn in (Turn("train", 2), None):
        built = one.build(clip, info, state, turn)
        assert isinstance(built, MixtureClassifier)
        head = built.head()
        assert isinstance(head, MixtureHead)
        with torch.no_grad():
            aligned, _ = head.gate(images, torch.cat([head.text[None], head.others]))
            expected = head.scale * (0.2 * images @ head.text.T + aligned)
            check_close(head.logits(images), expected, CLIP_LOGITS)
    published = load(one.publish(clip, info, state).files["prompt.safetensors"])
    assert float(published["mixing"]) == pytest.approx(0.2)


def test_without_experts_the_gate_trains_alone_and_nothing_is_sent(clip: ResidentClip, tmp_path: Path) -> None:
    """Not a byte of a tensor up or down; what is published is the client's prompt under its own trained gate."""
    loop, artefacts = run(clip, tmp_path, method={"experts": 0, "mixing": 0.3})
    files = [*(tmp_path / "exchange").glob("*/*/*.safetensors")]
    assert files
    assert all(load(path.read_bytes()) == {} for path in files)
    start = loop.method.initial(clip, loop.clients, loop.seed)["prompt"]
    assert loop.method.publish_global(clip, loop.clients, {}) is None
    assert loop.method.trust.aggregator == []
    for client in loop.clients:
        kept, untrained = artefacts[client.id], loop.method.enrol(clip, client, loop.seed)
        assert "others" not in kept
        assert torch.equal(untrained["prompt"], start)
        assert not torch.equal(kept["prompt"], start)
        assert not torch.equal(kept["gate.value.weight"], untrained["gate.value.weight"])
        assert not torch.equal(kept["gate.output.weight"], untrained["gate.output.weight"])
        head = make_head(clip.clip, kept, client.class_names, "{class}.")
        built = loop.method.build(clip, client, loop.method.restore({"prompt.safetensors": to_bytes(kept)}), None)
        assert isinstance(head, MixtureHead)
        assert head.experts == ("own",)
        x = clip.features(loop.backend.site.clients[client.id].test)
        with torch.no_grad():
            logits, attention = head.explained(x)
            width = kept["gate.value.weight"].shape[0]
            value = pool(head.text, width) @ kept["gate.value.weight"].T + kept["gate.value.bias"]
            seen = value @ kept["gate.output.weight"].T + kept["gate.output.bias"]
            expected = head.scale * (0.3 * x @ head.text.T + pool(x, width) @ seen.T)
        assert torch.equal(attention, torch.ones_like(attention))
        check_close(logits, expected, CLIP_LOGITS)
        check_close(built.head().logits(x), expected, CLIP_LOGITS)


def test_without_experts_the_store_takes_the_version_and_the_gateway_answers(
    clip: ResidentClip, tmp_path: Path
) -> None:
    loop, _ = federation(config("pfedmoap", method={"experts": 0}, evaluate={"references": []}), clip, tmp_path)
    artefacts = {client: ending.artefact for client, ending in loop.run()[0].items()}
    store = Store(tmp_path / "store")
    publish(store, loop.method, clip, artefacts, {client: {} for client in artefacts}, {}, activate=True)
    image = loop.backend.site.clients["client-00"].test[0].image

    async def ask() -> dict[str, Any]:
        async with serving(store) as http:
            return await classify(http, "client-00", image)

    assert [expert["id"] for expert in asyncio.run(ask())["experts"]] == ["own"]


def test_without_experts_who_never_took_part_has_no_gate(clip: ResidentClip, tmp_path: Path) -> None:
    loop, artefacts = run(clip, tmp_path, method={"experts": 0}, federation={"rounds": 1, "clients_per_round": 1})
    kept = sorted(set(artefacts[client.id]) == {"prompt"} for client in loop.clients)
    assert kept == [False, True, True]


def test_without_experts_there_is_nothing_to_make_private() -> None:
    dp = {"dp": {"clip_norm": 1.0, "noise_multiplier": 1.0}}
    with pytest.raises(ValueError, match=r"privacy.dp: pfedmoap uploads nothing that it could make private"):
        config("pfedmoap", method={"experts": 0}, privacy=dp, client={"clip_norm": None})


def test_a_client_that_is_never_drawn_publishes_the_mean_with_the_gate_off(clip: ResidentClip, tmp_path: Path) -> None:
    loop, artefacts = run(clip, tmp_path, federation={"rounds": 2, "clients_per_round": 1})
    committed = loop.checkpoints.latest()
    idle = [client for client in loop.clients if POOL + client.id not in committed.server]
    assert idle
    for client in idle:
        assert artefacts[client.id].keys() == {"prompt"}
        assert torch.equal(artefacts[client.id]["prompt"], committed.server["prompt"])
        state = loop.method.restore({"prompt.safetensors": to_bytes(artefacts[client.id])})
        assert type(loop.method.build(clip, client, state, None)) is PromptClassifier


@pytest.mark.parametrize("data", [{"classes_per_client": 2, "few_shot": None, "train_per_client": 1}, {"few_shot": 1}])
def test_a_client_with_one_image_trains(clip: ResidentClip, tmp_path: Path, data: dict[str, Any]) -> None:
    _, artefacts = run(clip, tmp_path, data=data)
    assert all(torch.isfinite(tensor).all() for kept in artefacts.values() for tensor in kept.values())


def test_a_client_with_one_class_trains(clip: ResidentClip, tmp_path: Path) -> None:
    loop, backend = federation(config("pfedmoap"), clip, tmp_path)
    state = {**loop.method.initial(clip, loop.clients, 0)}
    info = ClientInfo("client-00", 2, loop.clients[0].class_names[:1])
    own = {**state, **loop.method.enrol(clip, info, 0), "others": torch.stack([state["prompt"]] * 2)}
    personal = loop.method.build(clip, info, own, Turn("train", 1))
    examples = [example for example in backend.site.clients["client-00"].train if example.label == 0]
    outputs = personal.outputs(personal.prepare(examples), range(len(examples)))
    outputs.loss.backward()
    assert outputs.loss.item() == 0.0
    assert set(personal.answer(examples)) == {info.class_names[0]}


def test_the_plain_text_path_ends_with_the_same_answers(
    clip: ResidentClip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole run in which every class's text is encoded on its own: no test image is answered otherwise."""

    def answers(folder: Path) -> list[list[str]]:
        clip.text_cache = TensorCache(MIB)
        loop, artefacts = run(clip, folder, data={"few_shot": 4, "test_per_client": 60}, federation={"rounds": 4})
        clients = loop.backend.site.clients
        built = [loop.method.build(clip, info, artefacts[info.id], None) for info in loop.clients]
        return [one.answer(clients[info.id].test) for one, info in zip(built, loop.clients, strict=True)]

    shared = answers(tmp_path / "shared")
    monkeypatch.setattr(PromptedText, "features", PromptedText.plain_features)
    assert answers(tmp_path / "plain") == shared
