"""What every entry of the method table must keep; a new method gets these tests for nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from tests.train.small import config, federation
from train.methods import METHODS, build_method
from train.methods.contract import AveragingOptions, ClientInfo, ServerContext, Turn, Update
from train.methods.local import Local
from train.models.interfaces import Personal
from train.models.resident import zero_shot
from train.tensors import Tensors, schema_of, to_bytes

pytestmark = pytest.mark.numeric

every = pytest.mark.parametrize("name", METHODS)
communicating = pytest.mark.parametrize("name", [n for n, method in METHODS.items() if not issubclass(method, Local)])
RULES = ("mean", "median", "trimmed_mean", "multi_krum", "clipped_mean")
averaging = pytest.mark.parametrize("name", [n for n, method in METHODS.items() if not method.one_shot])
CLASSES = ("star", "ring", "moon")
CLIENTS = [ClientInfo("ann", 3, CLASSES), ClientInfo("bob", 1, CLASSES)]
NEWCOMER = ClientInfo("cat", 1, CLASSES)


def start(name: str, model: Any, seed: int = 7) -> tuple[Any, Tensors]:
    """The method, and what the first client would train from."""
    method = build_method(config(name).method)
    parcel = method.parcel(method.initial(model, CLIENTS, seed), CLIENTS[0])
    return method, method.absorb(method.enrol(model, CLIENTS[0], seed), parcel, Turn("train", 1))


def uploaded(method: Any, own: Tensors) -> Tensors:
    sent: Tensors = method.upload(own, Turn("train", 1))
    return sent


def equal(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@every
def test_the_start_is_a_function_of_the_seed(name: str, resident: Any) -> None:
    model = resident(name)
    assert equal(start(name, model)[1], start(name, model)[1])
    assert not equal(start(name, model)[1], start(name, model, seed=8)[1])


@every
def test_an_upload_has_the_expected_schema_and_nothing_else(name: str, resident: Any) -> None:
    method, own = start(name, resident(name))
    state = method.initial(resident(name), CLIENTS, 7)
    assert schema_of(uploaded(method, own)) == method.expected(state, CLIENTS[0], Turn("train", 1))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", [n for n in METHODS if isinstance(config(n).method, AveragingOptions)])
def test_any_aggregator_stands_for_the_mean(name: str, rule: str, resident: Any) -> None:
    """Equal updates come out as they are; with one that is hostile, only the mean follows it."""
    model = resident(name)
    method = build_method(config(name, method={"aggregator": {"rule": rule}}).method)
    state = method.initial(model, CLIENTS, 7)
    sent = uploaded(method, start(name, model)[1])
    clients = [ClientInfo(f"c{i}", 1, CLASSES) for i in range(5)]
    context = ServerContext(model, clients, 7, 1, 0, {})
    updates = [Update(client.id, 1, sent) for client in clients]
    combined = method.combine(state, updates, context)
    assert all(torch.allclose(combined[key], tensor) for key, tensor in sent.items())
    hostile = Update("c4", 1, {key: tensor + 1e6 for key, tensor in sent.items()})
    moved = method.combine(state, [*updates[:4], hostile], context)
    assert all((float((moved[key] - tensor).abs().max()) > 1e4) == (rule == "mean") for key, tensor in sent.items())


@averaging
def test_combining_is_the_weighted_mean_and_leaves_its_inputs_alone(name: str, resident: Any) -> None:
    model = resident(name)
    method, own = start(name, model)
    sent, state = uploaded(method, own), method.initial(model, CLIENTS, 7)
    shifted = {k: v + 1 for k, v in sent.items()}
    updates = [Update("ann", 3, sent), Update("bob", 1, shifted)]
    before = to_bytes(state)
    combined = method.combine(state, updates, ServerContext(model, CLIENTS, 7, 1, 0))
    assert to_bytes(state) == before
    received = method.parcel(combined, NEWCOMER)
    for key, value in sent.items():
        torch.testing.assert_close(received[key], (3 * value + (value + 1)) / 4, rtol=1e-6, atol=1e-6)


@averaging
def test_a_client_alone_gets_its_own_update_back(name: str, resident: Any) -> None:
    model = resident(name)
    method, own = start(name, model)
    sent, state = uploaded(method, own), method.initial(model, CLIENTS, 7)
    combined = method.combine(state, [Update("ann", 5, sent)], ServerContext(model, CLIENTS, 7, 1, 0))
    parcel = method.parcel(combined, CLIENTS[0])
    assert equal(parcel, sent)


@every
def test_what_is_published_restores_to_the_same_state(name: str, resident: Any) -> None:
    model = resident(name)
    method, own = start(name, model)
    artefact = method.publish(model, CLIENTS[0], own)
    restored = method.restore(artefact.files)
    assert method.publish(model, CLIENTS[0], restored).files == artefact.files
    built = [method.build(model, CLIENTS[0], state, None).parameters for state in (own, restored)]
    assert equal(dict(built[0]), dict(built[1]))
    shared = method.publish_global(model, CLIENTS, method.initial(model, CLIENTS, 7))
    assert (shared is None) == isinstance(method, Local)
    if shared is not None:
        assert method.restore(shared.files).keys() == uploaded(method, own).keys()


@communicating
def test_nothing_but_the_declared_tensors_leaves_a_client(name: str, resident: Any, tmp_path: Path) -> None:
    """Byte by byte: each file in ``up`` is exactly its named tensors, those of the method, changed by training."""
    loop, _ = federation(config(name, federation={"rounds": 1}), resident(name), tmp_path)
    committed = loop._round(1, None)
    initial = loop.method.initial(loop.model, loop.clients, loop.seed)
    spells = [loop.method.exchanges(client, 1, True) for client in loop.clients]
    uploads = sorted((tmp_path / "exchange").glob("train-0001-*/up/*.safetensors"))
    expected = [client for turn in range(max(spells)) for client in loop.clients]
    assert [path.stem for path in uploads] == [client.id for client in expected]
    for path, client in zip(uploads, expected, strict=True):
        data = path.read_bytes()
        tensors = load(data)
        assert to_bytes(tensors) == data
        assert schema_of(tensors) == loop.method.expected(initial, client, Turn("train", 1))
        parcel = loop.method.parcel(initial, client)
        assert not equal(tensors, {key: parcel[key] for key in tensors})
        report = json.loads(path.with_suffix(".json").read_text())
        assert report.keys() == {"loss", "seconds"}
    assert not equal(committed.server, initial)


@every
def test_rounds_reproduce_to_the_bit(name: str, resident: Any, tmp_path: Path) -> None:
    """Two runs of one configuration, one right after the other on the same resident base, publish the same bytes."""
    runs = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        loop, _ = federation(config(name, evaluate={"references": []}), resident(name), folder)
        endings, shared = loop.run()
        artefacts = [ending.artefact for ending in endings.values()] + ([] if shared is None else [shared])
        runs.append([artefact.files for artefact in artefacts])
    assert runs[0] == runs[1]
    assert len({bytes(b"".join(files.values())) for files in runs[0]}) == len(runs[0])  # every client has its own


@every
def test_the_zero_shot_row_is_the_base_whatever_was_there_before(name: str, resident: Any, tmp_path: Path) -> None:
    model = resident(name)
    loop, backend = federation(config(name), model, tmp_path)
    info = loop.clients[0]
    examples = backend.site.clients[info.id].test

    def loss(personal: Personal) -> float:
        return personal.outputs(personal.prepare(examples), range(len(examples))).loss.item()

    before = loss(zero_shot(model, info.class_names)), zero_shot(model, info.class_names).answer(examples)
    initial = start(name, model)[1].items()
    state = {key: torch.randn_like(value) if value.is_floating_point() else value for key, value in initial}
    personal = loop.method.build(model, info, state, None)
    assert loss(personal) != before[0]
    personal.answer(examples)
    assert zero_shot(model, info.class_names).answer(examples) == before[1]
