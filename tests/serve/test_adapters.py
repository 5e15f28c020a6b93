"""The life cycle of versions, over a real store and a hand-written engine that can be told to misbehave."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from adapters_store.base import base_id
from adapters_store.store import Store
from serve.adapters import SPARE_VERSIONS, Adapters
from serve.errors import EngineUnreachableError, GatewayError, unavailable
from serve.settings import Settings
from serve.subjects import Subject, of_base
from tests.serve.artefacts import LLAVA, publish_lora

BASE = base_id(LLAVA, "nf4")
Scenario = Callable[[Store, "FakeEngine", Adapters], Awaitable[None]]


class FakeEngine:
    """Stands where the engine's host stands: counts loads, refuses names, ends at a name, is down."""

    def __init__(self) -> None:
        self.base_id = BASE
        self.max_rank: int | None = 8
        self.generation: int | None = 1
        self.loaded: list[str] = []
        self.history: list[str] = []
        self.refuses: set[str] = set()
        self.ends_at: set[str] = set()

    def require_up(self) -> None:
        if self.generation is None:
            raise unavailable("the engine is down")

    async def load(self, subject: Subject) -> None:
        self.history.append(subject.name)
        if subject.name in self.ends_at:
            self.restart()
            raise EngineUnreachableError
        if subject.name in self.refuses:
            raise unavailable("the engine could not do this")
        self.loaded.append(subject.name)

    async def unload(self, subject: Subject) -> None:
        self.loaded.remove(subject.name)

    def restart(self) -> None:
        """Everything that was loaded is gone."""
        self.loaded.clear()
        self.generation = (self.generation or 0) + 1


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario over an empty store."""

    def run(scenario: Scenario) -> None:
        store, engine = Store(tmp_path / "store"), FakeEngine()
        fixed = [of_base(LLAVA, BASE, tmp_path)]
        adapters = Adapters(store, {"mllm": engine}, fixed, Settings(retry_refused_s=1000, drain_timeout_s=2))
        asyncio.run(scenario(store, engine, adapters))

    return run


async def settled() -> None:
    """Lets retired versions be unloaded."""
    await asyncio.sleep(0.12)


async def answering(adapters: Adapters, client: str, version: str | None = None) -> str:
    """The version a request would be answered by."""
    resident = await adapters.lease(client, version)
    resident.release()
    return resident.subject.version


def test_a_new_version_replaces_the_old_one(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        first = publish_lora(store, "ann", 1)
        assert not adapters.ready
        await adapters.sync()
        assert adapters.ready
        assert await answering(adapters, "ann") == first
        assert await answering(adapters, "base") == BASE
        second = publish_lora(store, "ann", 2)
        await adapters.sync()
        assert await answering(adapters, "ann") == second
        await settled()
        assert engine.loaded == [f"base@{BASE}", f"ann@{second}"]
        store.rollback("ann")
        await adapters.sync()
        assert await answering(adapters, "ann") == first

    play(scenario)


def test_the_old_one_finishes_what_it_began(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        first = publish_lora(store, "ann", 1)
        await adapters.sync()
        busy = await adapters.lease("ann")
        publish_lora(store, "ann", 2)
        await adapters.sync()
        await settled()
        assert f"ann@{first}" in engine.loaded
        busy.release()
        await settled()
        assert f"ann@{first}" not in engine.loaded

    play(scenario)


@pytest.mark.parametrize("fault", ["engine", "bytes", "base", "rank"])
def test_a_bad_version_changes_nothing(play: Callable[[Scenario], None], fault: str) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        first = publish_lora(store, "ann", 1)
        await adapters.sync()
        if fault == "base":
            engine.base_id = "f" * 16
        bad = publish_lora(store, "ann", 2, rank=16 if fault == "rank" else 4)
        if fault == "engine":
            engine.refuses.add(f"ann@{bad}")
        if fault == "bytes":
            file = store.root / "ann" / bad / "adapter_model.safetensors"
            file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\0")
        await adapters.sync()
        await adapters.sync()
        assert await answering(adapters, "ann") == first
        assert adapters.ready  # one client's bad version is no reason to take no requests
        assert list(adapters.refused) == [f"ann@{bad}"]
        words = {"engine": "could not do this", "bytes": "damaged", "base": "is served", "rank": "at most 8"}
        assert words[fault] in adapters.refused[f"ann@{bad}"]
        assert engine.history.count(f"ann@{bad}") == (fault == "engine")  # the others never reach the engine
        store.rollback("ann")
        await adapters.sync()
        assert adapters.refused == {}

    play(scenario)


def test_a_refused_version_is_taken_once_it_is_repaired(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        version = publish_lora(store, "ann", 1)
        engine.refuses.add(f"ann@{version}")
        await adapters.sync()
        with pytest.raises(GatewayError, match="could not do this") as refused:
            await adapters.lease("ann")
        assert refused.value.status == 503
        engine.refuses.clear()
        await adapters.sync(retry_refused=True)
        assert await answering(adapters, "ann") == version
        assert adapters.refused == {}

    play(scenario)


def test_everything_is_loaded_again_after_a_restart(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        version = publish_lora(store, "ann", 1)
        await adapters.sync()
        engine.restart()
        assert not adapters.ready
        with pytest.raises(GatewayError):
            await adapters.lease("ann")
        await adapters.sync()
        assert adapters.ready
        assert sorted(engine.loaded) == sorted([f"ann@{version}", f"base@{BASE}"])
        assert await answering(adapters, "ann") == version

    play(scenario)


def test_a_restart_with_a_bad_live_version_falls_back(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        first = publish_lora(store, "ann", 1)
        bad = publish_lora(store, "ann", 2)
        engine.refuses.add(f"ann@{bad}")
        await adapters.sync()
        assert await answering(adapters, "ann") == first

    play(scenario)


def test_a_version_that_ends_the_engine_is_not_tried_for_ever(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        first = publish_lora(store, "ann", 1)
        deadly = publish_lora(store, "ann", 2)
        engine.ends_at.add(f"ann@{deadly}")
        with pytest.raises(EngineUnreachableError):
            await adapters.sync()
        await adapters.sync()
        await adapters.sync()
        assert engine.history.count(f"ann@{deadly}") == 2
        assert await answering(adapters, "ann") == first

    play(scenario)


def test_a_client_that_is_gone_is_forgotten(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        publish_lora(store, "ann", 1)
        await adapters.sync()
        (store.root / "ann").rename(store.root.parent / "elsewhere")
        await adapters.sync()
        await settled()
        assert engine.loaded == [f"base@{BASE}"]
        with pytest.raises(GatewayError) as refused:
            await adapters.lease("ann")
        assert refused.value.status == 404

    play(scenario)


def test_named_versions_are_loaded_on_demand_and_not_hoarded(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        versions = [publish_lora(store, "ann", seed, activate=seed == 0) for seed in range(SPARE_VERSIONS + 3)]
        await adapters.sync()
        for version in versions:
            assert await answering(adapters, "ann", version) == version
        await adapters.sync()
        await settled()
        assert len(engine.loaded) == SPARE_VERSIONS + 2  # the spare ones, the live one, the base
        assert f"ann@{versions[0]}" in engine.loaded
        with pytest.raises(GatewayError) as refused:
            await adapters.lease("ann", "0123456789abcdef")
        assert refused.value.status == 404

    play(scenario)


def test_nothing_is_verified_while_the_engine_is_down(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        publish_lora(store, "ann", 1)
        engine.generation = None
        await adapters.sync()
        assert engine.history == []
        assert adapters.refused == {}
        with pytest.raises(GatewayError, match="engine is down") as refused:
            await adapters.lease("ann")
        assert refused.value.status == 503

    play(scenario)
