"""Connectors in memory: bounded, read again when asked for, never given up in use; unfit ones are refused."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from adapters_store.personal.connector import CONNECTOR, read_connector
from adapters_store.store import Store
from adapters_store.versions.verify import entry_of
from serve.chat.connector_batch import connect
from serve.chat.connectors import Connectors
from serve.chat.vision import Vision
from serve.errors import GatewayError
from serve.metrics import Metrics
from serve.settings import MIB, Settings
from serve.versions.subjects import Subject
from tests.floats import check_close
from tests.serve.artefacts import (
    CONNECTOR_TERMS,
    LLAVA,
    TOKEN,
    VISION,
    Tensors,
    connector_tensors,
    lora_files,
    lora_manifest,
    subject_of,
)

pytestmark = pytest.mark.numeric

BOUND_MIB = 8  # two connectors of 2.25 MiB with the 1.5 MiB they share, and not three


@cache
def vision() -> Vision:
    """The embedded LLaVA's vision half."""
    return Vision(LLAVA, torch.device("cpu"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def publish(store: Store, client: str, tensors: Tensors) -> Subject:
    """A version with that connector, as the gateway sees it."""
    files = lora_files(0) | {CONNECTOR: save(tensors)}
    version = store.publish(lora_manifest(client), files, {}, activate=False)
    return subject_of(store, client, version)


def placed(folder: Path, data: bytes) -> Subject:
    """A version that the store would not have published."""
    (folder / CONNECTOR).write_bytes(data)
    subject = Subject("zed", "0" * 16, "mllm", folder, "0" * 16, lora_manifest("zed").image_transform, "")
    return replace(subject, connector=entry_of(data).sha256)


def run(work: Callable[[Connectors, Metrics], Awaitable[None]], connector_mib: int = BOUND_MIB) -> None:
    """Does the work with new connectors in an event loop."""

    async def within() -> None:
        metrics = Metrics()
        await work(Connectors(vision(), Settings(connector_mib=connector_mib), metrics), metrics)

    asyncio.run(within())


def figure(metrics: Metrics, name: str) -> float:
    """One number of what Prometheus reads."""
    lines = metrics.render(True, 1, 0).decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


async def settled(connectors: Connectors) -> int:
    """Bytes in memory once threads and exceptions have let go of what they worked on."""
    await asyncio.sleep(0.05)
    gc.collect()
    return connectors.nbytes


async def ask(connectors: Connectors, subject: Subject) -> torch.Tensor:
    """Soft tokens (1, N, W) of a plain picture."""
    async with connectors.using(subject) as connector:
        assert connector is not None
        return connect([connector], vision().sample)


async def check_answer(connectors: Connectors, subject: Subject) -> None:
    """What comes out is what the version's file says."""
    expected = read_connector(load_file(subject.folder / CONNECTOR))(vision().sample)
    check_close(await ask(connectors, subject), expected, CONNECTOR_TERMS)


def test_memory_stays_within_the_bound_and_answers_right(store: Store) -> None:
    subjects = [publish(store, f"c{k}", connector_tensors(k)) for k in range(4)]

    async def work(connectors: Connectors, metrics: Metrics) -> None:
        for subject in subjects:
            await connectors.load(subject)
            assert connectors.nbytes <= BOUND_MIB * MIB
        assert figure(metrics, "fedtailor_connector_evictions_total") == 2
        for turn in (0, 1, 0, 1, 2, 3, 3):
            await check_answer(connectors, subjects[turn])
            assert connectors.nbytes <= BOUND_MIB * MIB
        assert figure(metrics, "fedtailor_connector_reads_total") == 4 + 4  # again only what had gone
        assert figure(metrics, "fedtailor_connector_bytes") == connectors.nbytes > 0

    run(work)


def test_what_an_answer_needs_is_never_given_up(store: Store) -> None:
    first, second = (publish(store, f"c{k}", connector_tensors(k)) for k in range(2))

    async def work(connectors: Connectors, metrics: Metrics) -> None:
        async with connectors.using(first) as held:
            await check_answer(connectors, second)
            async with connectors.using(first) as again:
                assert again is held
        del held, again
        assert await settled(connectors) == 0  # nothing fits, and nothing is needed any more
        assert figure(metrics, "fedtailor_connector_reads_total") == 2

    run(work, connector_mib=0)


def test_those_who_ask_together_have_it_read_once(store: Store) -> None:
    subject = publish(store, "amy", connector_tensors(0))

    async def work(connectors: Connectors, metrics: Metrics) -> None:
        await asyncio.gather(*(check_answer(connectors, subject) for _ in range(5)))
        assert figure(metrics, "fedtailor_connector_reads_total") == 1

    run(work)


def test_a_version_that_leaves_takes_its_own_and_what_nobody_else_uses(store: Store) -> None:
    first, second = (publish(store, f"c{k}", connector_tensors(k)) for k in range(2))

    async def work(connectors: Connectors, metrics: Metrics) -> None:
        await connectors.load(first)
        alone = connectors.nbytes
        await connectors.load(second)
        connectors.unload(first)
        assert await settled(connectors) == alone
        connectors.unload(second)
        assert await settled(connectors) == figure(metrics, "fedtailor_connector_bytes") == 0

    run(work)


def test_versions_with_one_file_share_it(store: Store) -> None:
    first, second = (publish(store, client, connector_tensors(0)) for client in ("amy", "ben"))

    async def work(connectors: Connectors, metrics: Metrics) -> None:
        await connectors.load(first)
        alone = connectors.nbytes
        await connectors.load(second)
        assert connectors.nbytes == alone
        connectors.unload(first)
        await check_answer(connectors, second)

    run(work)


def test_without_a_connector_there_is_nothing_to_hold(store: Store) -> None:
    version = store.publish(lora_manifest("amy"), lora_files(0), {}, activate=False)

    async def work(connectors: Connectors, metrics: Metrics) -> None:
        subject = subject_of(store, "amy", version)
        await connectors.load(subject)
        async with connectors.using(subject) as connector:
            assert connector is None
        connectors.unload(subject)
        assert connectors.nbytes == 0

    run(work)


def cut(tensors: Tensors, part: str, axis: int) -> Tensors:
    """Every tensor of that part eight shorter along the axis."""
    return {
        name: tensor.narrow(axis, 0, tensor.shape[axis] - 8).contiguous() if name.endswith(part) else tensor
        for name, tensor in tensors.items()
    }


NARROW = cut(cut(connector_tensors(0), "linear_1.weight", 1), "router.weight", 1)
SHORT = cut(cut(connector_tensors(0), "linear_2.weight", 0), "linear_2.bias", 0)


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        (NARROW, f"takes features of width {VISION - 8} where the base has {VISION}"),
        (SHORT, f"gives soft tokens of width {TOKEN - 8} where the base has {TOKEN}"),
        ({name: 1e30 * t for name, t in connector_tensors(0).items()}, "soft tokens of connector.safetensors are not"),
    ],
)
def test_what_does_not_fit_the_base_is_refused_and_nothing_of_it_is_kept(
    store: Store, tensors: Tensors, sentence: str
) -> None:
    subject = publish(store, "amy", tensors)

    async def work(connectors: Connectors, metrics: Metrics) -> None:
        with pytest.raises(ValueError, match=sentence) as refused:
            await connectors.load(subject)
        assert "\n" not in str(refused.value)
        del refused
        assert await settled(connectors) == 0

    run(work)


def test_a_file_that_is_gone_or_damaged_is_said(store: Store, tmp_path: Path) -> None:
    subject = publish(store, "amy", connector_tensors(0))
    broken = placed(tmp_path, b"no safetensors")

    async def work(connectors: Connectors, metrics: Metrics) -> None:
        with pytest.raises(ValueError, match="is not a readable safetensors file"):
            await connectors.load(broken)
        await connectors.load(subject)
        connectors.unload(subject)
        file = subject.folder / CONNECTOR
        file.write_bytes(file.read_bytes()[:-1] + b"\x01")
        with pytest.raises(GatewayError, match="is damaged") as refused:
            await ask(connectors, subject)
        assert refused.value.status == 503
        file.unlink()
        with pytest.raises(GatewayError, match="cannot be read"):
            await ask(connectors, subject)

    run(work)
