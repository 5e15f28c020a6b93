"""Connectors of several clients over one batch: the numbers of each by itself, and memory that is shared."""

import pytest
import torch

from adapters_store.personal.connector import Connector, read_connector
from serve.chat.connector_batch import BatchedConnector, FrozenByDigest, batched, connect
from tests.floats import check_close
from tests.serve.artefacts import CONNECTOR_TERMS, TASKS, TOKEN, VISION, Tensors, connector_tensors, mlp_tensors

pytestmark = pytest.mark.numeric

CPU = torch.device("cpu")
TOKENS = 8


def features(images: int, seed: int = 0) -> torch.Tensor:
    """Random features (images, TOKENS, VISION)."""
    return torch.randn(images, TOKENS, VISION, generator=torch.Generator().manual_seed(seed))


def global_tensors() -> Tensors:
    """Task adapters alone, as Pilot publishes for new clients."""
    return {name: t for task in range(TASKS) for name, t in mlp_tensors(f"experts.{task}.task", task).items()}


def every_kind() -> list[Connector]:
    """Two of one task, one of another, the global one, one that is an adapter alone, one of half the precision."""
    tensors = [connector_tensors(1), connector_tensors(2), connector_tensors(3, task=2), global_tensors()]
    tensors += [mlp_tensors("experts.0.task", 77)]
    tensors += [{name: tensor.bfloat16() for name, tensor in connector_tensors(4).items()}]
    return [read_connector(one) for one in tensors]


def all_served(connectors: list[Connector]) -> tuple[list[BatchedConnector], FrozenByDigest]:
    """The connectors as the gateway holds them, and what they share."""
    held = FrozenByDigest()
    return [batched(connector, held, CPU) for connector in connectors], held


def in_float32(connector: Connector) -> Connector:
    experts = tuple(tuple(type(a)(*(t.float() for t in a)) for a in expert) for expert in connector.experts)
    client = None if connector.client is None else type(connector.client)(*(t.float() for t in connector.client))
    return Connector(experts, None if connector.router is None else connector.router.float(), client)


def test_every_row_of_a_mixed_batch_is_its_connectors_own() -> None:
    connectors = every_kind()
    ready, _ = all_served(connectors)
    rows = [3, 0, 1, 5, 0, 2, 4, 1, 3, 0]
    images = features(len(rows))
    found = connect([ready[i] for i in rows], images)
    assert found.shape == (len(rows), TOKENS, TOKEN)
    for row, i in enumerate(rows):
        expected = in_float32(connectors[i])(images[row])
        check_close(found[row], expected, CONNECTOR_TERMS)
        check_close(found[row], connect([ready[i]], images[row : row + 1])[0], CONNECTOR_TERMS)


def test_two_tasks_that_nobody_has_trained_yet_are_two_experts() -> None:
    tensors = connector_tensors(1)
    tensors |= {name.replace("experts.1", "experts.2"): t for name, t in mlp_tensors("experts.1.task", 1).items()}
    connector = read_connector(tensors)
    ready, held = all_served([connector])
    assert len(held) == TASKS - 2
    images = features(2)
    check_close(connect([ready[0]] * 2, images), connector(images), CONNECTOR_TERMS)


def storages(connectors: list[BatchedConnector], held: FrozenByDigest) -> dict[int, int]:
    """Bytes of every piece of memory behind the connectors, by its address."""
    tensors = [tensor for one in connectors for tensor in (one.router, *one.own)]
    tensors += [tensor for frozen in held.values() for tensor in frozen.stack]
    return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}


def test_a_client_costs_its_own_trained_tensors() -> None:
    ready, held = all_served([read_connector(connector_tensors(k, task=k % TASKS)) for k in range(TASKS)])
    before = sum(storages(ready, held).values())
    tensors = connector_tensors(9, task=1)
    ready.append(batched(read_connector(tensors), held, CPU))
    cost = sum(storages(ready, held).values()) - before
    received = {f"experts.{expert}.task" for expert in range(1, TASKS)}
    trained = sum(t.nbytes for name, t in tensors.items() if not name.startswith(tuple(received)))
    assert trained <= cost < 1.05 * trained
    assert sum(one.nbytes for one in ready) + sum(f.nbytes for f in held.values()) == before + cost


def test_what_is_shared_goes_with_its_last_user() -> None:
    ready, held = all_served([read_connector(connector_tensors(k, task=0)) for k in range(2)])
    assert len(held) == TASKS - 1
    del ready[0]
    assert len(held) == TASKS - 1
    del ready[0]
    assert len(held) == 0


def test_the_same_numbers_in_another_type_are_not_shared() -> None:
    tensors = connector_tensors(1)
    halves = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    _ready, held = all_served([read_connector(tensors), read_connector(halves)])
    assert len(held) == 2 * (TASKS - 1)
