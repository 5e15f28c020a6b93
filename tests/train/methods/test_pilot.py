"""Pilot: who trains what when, what leaves the client, what the server makes of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from adapters_store.personal.connector import CONNECTOR, PARTS, ROUTER
from tests.floats import check_close
from tests.serve.artefacts import CONNECTOR_TERMS
from tests.train.small import config, federation
from train.methods import build_method
from train.methods.contract import ClientInfo, ServerContext, Turn, Update
from train.methods.pilot import STAGE, Pilot
from train.methods.pilot_losses import balance_loss, difference_loss, z_loss
from train.methods.pilot_server import MEAN, OWN, group
from train.models.connected import ConnectedPersonal
from train.models.interfaces import Outputs
from train.models.mllm import Mllm
from train.tensors import Tensors, from_bytes, schema_of, to_bytes

pytestmark = pytest.mark.numeric

A, B = "base.lora_A.weight", "base.lora_B.weight"
PROJECTOR = {part: torch.zeros(1) for part in PARTS}
CLIENTS = [ClientInfo("ann", 1, task="caption"), ClientInfo("bob", 3, task="caption"), ClientInfo("cat", 4, task="vqa")]
BOTH = {"ann": 2, "bob": 2, "cat": 2}


def pilot(**options: Any) -> Pilot:
    method = build_method(config("pilot", method={"name": "pilot", **options}).method)
    assert isinstance(method, Pilot)
    return method


def update(client: str, number: float) -> Update:
    """An upload all of whose numbers are this one."""
    value = float(number)
    examples = {info.id: info.examples for info in CLIENTS}[client]
    own = {OWN + part: torch.full((1,), value) for part in PARTS}
    return Update(client, examples, {A: torch.full((1, 1), value), B: torch.full((1, 1), value), **own})


def server() -> Tensors:
    lora = group(MEAN, {A: torch.zeros(1, 1), B: torch.zeros(1, 1)})
    return lora | group("task/caption/", PROJECTOR) | group("task/vqa/", PROJECTOR)


def combined(
    state: Tensors, updates: Sequence[Update], exchange: int, exchanges: Mapping[str, int], **options: Any
) -> Tensors:
    context = ServerContext(None, CLIENTS, 0, 1, exchange, exchanges)  # type: ignore[arg-type]
    return pilot(**options).combine(state, updates, context)


def task(state: Tensors, name: str) -> float:
    return float(state[f"task/{name}/{PARTS[0]}"])


def test_task_means_are_weighted_by_examples_and_keep_to_their_task() -> None:
    state = combined(server(), [update("ann", 1), update("bob", 5), update("cat", 9)], 0, BOTH)
    assert task(state, "caption") == (1 * 1 + 3 * 5) / 4
    assert task(state, "vqa") == 9
    assert float(state[MEAN + A]) == (1 * 1 + 3 * 5 + 4 * 9) / 8
    alike = combined(server(), [update("ann", 1), update("bob", 5), update("cat", 9)], 0, BOTH, weighting="uniform")
    assert task(alike, "caption") == 3


def test_a_task_that_nobody_present_has_keeps_its_mean() -> None:
    state = combined(server(), [update("ann", 1), update("cat", 9)], 0, {})
    state = combined(state, [update("ann", 2)], 0, {})
    assert (task(state, "caption"), task(state, "vqa")) == (2, 9)


def test_a_newcomers_first_exchange_counts_only_where_there_is_no_mean() -> None:
    state = combined(server(), [update("ann", 1)], 0, {})
    state = combined(state, [update("bob", 5), update("cat", 9)], 0, BOTH)
    assert (task(state, "caption"), task(state, "vqa")) == (1, 9)
    state = combined(state, [update("bob", 6), update("cat", 8)], 1, BOTH)
    assert (task(state, "caption"), task(state, "vqa")) == (6, 8)


def test_both_exchanges_of_a_round_are_averaged_together() -> None:
    """Ann trains in stage 2 at once, bob after his stage 1: the task's mean holds both."""
    start = combined(server(), [update("ann", 1)], 0, {})
    state = combined(start, [update("ann", 2), update("bob", 50)], 0, {"ann": 1, "bob": 2})
    assert task(state, "caption") == 2
    state = combined(state, [update("bob", 6)], 1, {"ann": 1, "bob": 2})
    assert task(state, "caption") == (1 * 2 + 3 * 6) / 4
    assert float(state[MEAN + A]) == (1 * 2 + 3 * 6) / 4
    after = combined(state, [update("ann", 7)], 0, {})  # a new round starts anew
    assert task(after, "caption") == 7


def test_a_client_is_sent_its_own_adaptive_lora_and_the_other_tasks() -> None:
    method = pilot(top_m=1)
    state = combined(server(), [update("ann", 1), update("bob", 2), update("cat", 9)], 0, BOTH, top_m=1)
    ann, newcomer = method.parcel(state, CLIENTS[0]), method.parcel(state, ClientInfo("dan", 2, task="vqa"))
    assert float(ann[A]) == pytest.approx(1 / 4 * 1 + 3 / 4 * 2)  # bob is the nearest: n = 1 and 3
    assert float(ann["experts.1.task." + PARTS[0]]) == 9
    assert float(newcomer[A]) == float(state[MEAN + A])
    assert float(newcomer[OWN + PARTS[0]]) == 9
    assert not any(name.startswith("experts.1.") for name in newcomer)
    mean = combined(server(), [update("ann", 1), update("bob", 2), update("cat", 9)], 0, BOTH, aggregation="mean")
    assert all(float(method.parcel(mean, client)[A]) == float(mean[MEAN + A]) for client in CLIENTS)
    assert to_bytes(mean)  # tensors that share memory cannot be committed


def test_the_nearest_loras_are_those_with_the_scale_in_b() -> None:
    """s = 16/8: to ann, bob's A is 3 away and cat's B 2·2. Without s cat would be the nearer one."""
    factors = {"ann": (0.0, 0.0), "bob": (3.0, 0.0), "cat": (0.0, 2.0)}
    sent = []
    for name, (a, b) in factors.items():
        lora = {A: torch.full((1, 1), a), B: torch.full((1, 1), b)}
        sent.append(Update(name, 1, {**update(name, 0).tensors, **lora}))
    ann = pilot(top_m=1).parcel(combined(server(), sent, 0, BOTH, top_m=1), CLIENTS[0])
    assert (float(ann[A]), float(ann[B])) == (1.5, 0.0)


def test_the_loss_is_the_answers_and_the_terms_of_the_stage_by_the_options_weights() -> None:
    random = torch.Generator().manual_seed(0)
    answers = torch.tensor(2.0)
    task, client = torch.randn(2, 2, 6, 5, generator=random)
    logits = torch.randn(2, 6, 3, generator=random)
    mixed = {"logits": logits, "probabilities": logits.softmax(-1)}
    method = pilot(difference_weight=0.3, balance_weight=0.7, z_weight=0.2)

    def loss(extras: dict[str, Tensor], one: Pilot = method) -> float:
        return one.loss(Outputs(answers, extras), Turn("train", 1)).item()

    for form in ("per_image", "reference"):
        one = pilot(difference_weight=0.3, difference_loss=form)
        expected = 2 + 0.3 * difference_loss(task, client, form).item()  # type: ignore[arg-type]
        assert loss({"task": task, "client": client}, one) == pytest.approx(expected)
    expected = 2 + 0.7 * balance_loss(mixed["probabilities"]).item() + 0.2 * z_loss(logits).item()
    assert loss(mixed) == pytest.approx(expected)
    alone = {"logits": logits[..., :1], "probabilities": torch.ones(2, 6, 1)}
    assert loss(alone) == 2  # one expert: nothing to balance


def test_a_client_that_never_trained_is_served_what_it_is_sent(mllm: Mllm) -> None:
    method = pilot()
    state = method.initial(mllm, CLIENTS, 7)
    own = method.enrol(mllm, CLIENTS[0], 7)
    kept = method.absorb(own, method.parcel(state, CLIENTS[0]), Turn("personal", 1))
    files = method.publish(mllm, CLIENTS[0], kept).files
    assert from_bytes(files[CONNECTOR]).keys() == {OWN + part for part in PARTS}


def frozen(mllm: Mllm, personal: Any) -> bytes:
    moving = {id(parameter) for parameter in personal.parameters.values()}
    held = {n: t.detach().clone() for n, t in mllm.model.state_dict(keep_vars=True).items() if id(t) not in moving}
    return to_bytes({name: t for name, t in held.items() if ".lora_" not in name})


def test_the_first_round_trains_two_stages_and_keeps_what_is_private(mllm: Mllm, tmp_path: Path) -> None:
    loop, _ = federation(config("pilot", federation={"rounds": 1}), mllm, tmp_path)
    before = frozen(mllm, ConnectedPersonal(mllm, loop.method.options.lora, start(loop.method, mllm)))
    committed = loop._round(1, None)
    assert frozen(mllm, ConnectedPersonal(mllm, loop.method.options.lora, start(loop.method, mllm))) == before

    for client in loop.clients:
        own = committed.client(client.id)
        assert own is not None
        assert int(own[STAGE]) == 2
        enrolled = loop.method.enrol(mllm, client, loop.seed)
        for part in PARTS:
            assert not torch.equal(own[f"client.{part}"], enrolled[f"client.{part}"])  # trained, in stage 1
            assert not torch.equal(own[f"client.{part}"], own[OWN + part])
        sent = load_file(tmp_path / "exchange" / "train-0001-1" / "down" / f"{client.id}.safetensors")
        others = [name for name in sent if name.startswith("experts.") and not name.startswith(OWN)]
        assert len(others) == 4
        assert all(torch.equal(own[name], sent[name]) for name in others)  # received, frozen
        assert all(not torch.equal(own[name], sent[name]) for name in sent if name not in others)
        assert own[ROUTER].any()
        assert own[f"experts.1.cross.{PARTS[2]}"].any()


def test_no_byte_of_what_is_private_is_in_any_update(mllm: Mllm, tmp_path: Path) -> None:
    """Every row of every private tensor is looked for in the bytes of every file that left a client."""
    loop, _ = federation(config("pilot", federation={"rounds": 1}), mllm, tmp_path)
    committed = loop._round(1, None)
    uploads = [path.read_bytes() for path in (tmp_path / "exchange").glob("*/up/*")]
    assert len(uploads) == 2 * 2 * len(loop.clients)
    for client in loop.clients:
        own = committed.client(client.id)
        assert own is not None
        private = [name for name in own if name == ROUTER or name.startswith("client.") or ".cross." in name]
        assert len(private) == 4 + 4 + 1
        for name in private:
            rows: Tensor = own[name].reshape(-1, own[name].shape[-1])
            kept = [row.numpy().tobytes() for row in rows if row.any() and len(row) > 1]
            assert not any(row in data for row in kept for data in uploads)


def start(method: Any, mllm: Mllm) -> Tensors:
    info = CLIENTS[0]
    parcel = method.parcel(method.initial(mllm, CLIENTS, 7), info)
    state: Tensors = method.absorb(method.enrol(mllm, info, 7), parcel, Turn("train", 1))
    return state


def test_stage_one_begins_near_the_base_with_adapters_that_differ(mllm: Mllm) -> None:
    """As two copies of the projector they would double its output and stay equal for ever."""
    state = start(pilot(), mllm)
    personal = ConnectedPersonal(mllm, pilot().options.lora, state, apart=True)
    features = torch.randn(2, 64, 192, generator=torch.Generator().manual_seed(0))
    soft, extras = personal._connected(features)
    base = mllm.projector(features)
    assert (extras["client"].norm() / extras["task"].norm()).item() < 0.1
    check_close(extras["task"], base, CONNECTOR_TERMS)
    assert 0 < ((soft - base).norm() / base.norm()).item() < 0.1


def test_stage_two_begins_as_the_mean_of_the_task_adapters(mllm: Mllm) -> None:
    method = pilot()
    state = {**start(method, mllm), STAGE: torch.tensor(2)}
    state |= {f"experts.1.task.{part}": 2 * state[OWN + part] for part in PARTS}
    built = method.build(mllm, CLIENTS[0], state, Turn("train", 1, 1))
    features = torch.randn(2, 64, 192, generator=torch.Generator().manual_seed(0))
    assert isinstance(built, ConnectedPersonal)
    soft, extras = built._connected(features)
    assert extras["probabilities"].unique().tolist() == [0.5]
    experts = built.connector.experts
    client = built.connector.client
    assert client is not None
    check_close(soft, (experts[0][0](features) + experts[1][0](features)) / 2 + client(features), CONNECTOR_TERMS)
    assert {name for name in built.parameters if name.startswith("client.")} == set()


def test_options_leave_parts_out(mllm: Mllm) -> None:
    first = start(pilot(), mllm)
    parcel = {**first, **{f"experts.1.task.{part}": first[OWN + part] for part in PARTS}}
    parcel = {name: tensor for name, tensor in parcel.items() if name != STAGE and not name.startswith("client.")}
    kept = pilot(client_adapter_in_stage2=False).absorb(first, parcel, Turn("train", 2))
    assert not any(name.startswith("client.") for name in kept)
    state = combined(server(), [update("ann", 1), update("cat", 9)], 0, BOTH)
    assert not any(name.startswith("experts.1.") for name in pilot(cross_task=False).parcel(state, CLIENTS[0]))
    copied = pilot(cross_task_init="projector").build(
        mllm, CLIENTS[0], {**parcel, STAGE: torch.tensor(2)}, Turn("train", 2)
    )
    projector = mllm.projector_adapter()
    assert torch.equal(copied.parameters[f"experts.1.cross.{PARTS[2]}"], projector.weight_2)
    sent = {name: tensor + 1 for name, tensor in parcel.items()}
    for publish, expected in (("trained", first[OWN + PARTS[0]]), ("aggregated", sent[OWN + PARTS[0]])):
        published = pilot(publish=publish).absorb(first, sent, Turn("personal", 4))
        assert torch.equal(published[OWN + PARTS[0]], expected)


def test_an_update_of_another_size_is_not_what_is_expected(mllm: Mllm) -> None:
    method = pilot()
    state = method.initial(mllm, CLIENTS, 7)
    expected = method.expected(state, CLIENTS[0], Turn("train", 1))
    sent = method.upload(start(method, mllm), Turn("train", 1))
    assert schema_of(sent) == expected
    assert schema_of({**sent, ROUTER: torch.zeros(2, 192)}) != expected


def test_the_same_experts_in_the_vision_tower(mllm: Mllm, tmp_path: Path) -> None:
    """ct_clip: every MLP's adapters are trained and sent as the connector's are; the tower stays as it was."""
    small = config("pilot", method={"ct_clip": True}, federation={"rounds": 1}, evaluate={"references": []})
    method = build_method(small.method)
    before = frozen(mllm, ConnectedPersonal(mllm, small.method.lora, start(pilot(), mllm)))  # type: ignore[union-attr]
    loop, backend = federation(small, mllm, tmp_path, method)
    committed = loop._round(1, None)
    own = committed.client("client-00")
    assert own is not None
    projector = mllm.projector_adapter()
    assert not torch.equal(own[OWN + PARTS[0]], projector.weight_1)
    layers = {name.split(".")[1] for name in own if name.startswith("clip.")}
    assert layers == {"0", "1", "2", "3"}  # the features are those before the last of five
    for layer in layers:
        assert own[f"clip.{layer}.experts.1.cross.{PARTS[2]}"].any()
        assert own[f"clip.{layer}.{ROUTER}"].any()
        assert any(name == f"task/caption/clip.{layer}.{PARTS[0]}" for name in committed.server)
    endings, _ = loop.run()
    state = method.restore(endings["client-00"].artefact.files)
    examples = backend.site.clients["client-00"].test
    inside = method.build(mllm, loop.clients[0], state, None).answer(examples)
    plain = ConnectedPersonal(mllm, small.method.lora, state).see(examples)  # type: ignore[union-attr]
    assert len(inside) == len(examples)
    built = method.build(mllm, loop.clients[0], state, None)
    assert isinstance(built, ConnectedPersonal)
    assert not torch.equal(built.see(examples), plain)
    assert frozen(mllm, ConnectedPersonal(mllm, small.method.lora, start(pilot(), mllm))) == before  # type: ignore[union-attr]


def test_what_no_gateway_serves_is_not_published() -> None:
    with pytest.raises(ValueError, match=r"method.ct_clip: found true; .* publish.enabled must be false"):
        config("pilot", method={"ct_clip": True}, publish={"enabled": True})
