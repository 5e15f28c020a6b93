"""The life cycle of versions, over a real store and a hand-written engine that can be told to misbehave."""

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from adapters_store.bases.frozen import base_id
from adapters_store.store import Store
from serve.errors import EngineUnreachableError, GatewayError, unavailable
from serve.settings import Settings
from serve.versions.copies import WEIGHTS, Copies
from serve.versions.follow import SPARE_VERSIONS, Adapters
from serve.versions.loaded_versions import OF_ONE_CLIENT
from serve.versions.subjects import Subject, of_base
from tests.serve.artefacts import LLAVA, lora_files, publish_lora

BASE = base_id(LLAVA, "nf4")
Scenario = Callable[[Store, "FakeEngine", Adapters], Awaitable[None]]


class FakeEngine:
    """Stands where the engine's host stands: counts loads, refuses names, ends at a name, is down."""

    def __init__(self) -> None:
        self.base_id = BASE
        self.max_rank: int | None = 8
        self.capacity: int | None = 64
        self.is_sound = True
        self.generation: int | None = 1
        self.loaded: list[str] = []
        self.history: list[str] = []
        self.refuses: set[str] = set()
        self.ends_at: set[str] = set()
        self.fails_at: dict[str, Exception] = {}
        self.folders: dict[str, Path] = {}

    def require_up(self) -> None:
        if self.generation is None:
            raise unavailable("the engine is down")

    async def load(self, subject: Subject) -> None:
        self.history.append(subject.name)
        await asyncio.sleep(0.001)
        if subject.name in self.ends_at:
            self.restart()
            raise EngineUnreachableError
        if subject.name in self.refuses:
            raise unavailable("the engine could not do this")
        if subject.name in self.fails_at:
            raise self.fails_at[subject.name]
        self.loaded.append(subject.name)
        self.folders[subject.name] = subject.folder
        assert self.capacity is None or len(self.loaded) <= self.capacity

    async def unload(self, subject: Subject) -> None:
        self.loaded.remove(subject.name)

    async def sound(self) -> bool:
        if not self.is_sound:
            self.restart()
        return self.is_sound

    def restart(self) -> None:
        """Everything that was loaded is gone."""
        self.loaded.clear()
        self.generation = (self.generation or 0) + 1


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario over an empty store."""

    def run(scenario: Scenario) -> None:
        store, engine = Store(tmp_path / "store"), FakeEngine()
        adapters = gateway_over(store, {"mllm": engine}, tmp_path)
        asyncio.run(scenario(store, engine, adapters))

    return run


def gateway_over(store: Store, hosts: dict[str, FakeEngine], folder: Path) -> Adapters:
    """What follows the store, with what it makes in the folder."""
    fixed = [of_base(LLAVA, BASE, folder)]
    return Adapters(store, hosts, fixed, Copies(folder / "copies"), Settings(retry_refused_s=1000))


async def answering(adapters: Adapters, client: str, version: str | None = None) -> str:
    """The version a request would be answered by."""
    resident = await adapters.lease(client, "mllm", version)
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
        loads = len(engine.history)
        store.rollback("ann")
        await adapters.sync()
        assert await answering(adapters, "ann") == first
        assert len(engine.history) == loads  # it was kept loaded, for this

    play(scenario)


def test_what_is_giving_an_answer_or_live_is_not_unloaded(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        engine.capacity = 3
        first = publish_lora(store, "ann", 1)
        await adapters.sync()
        busy = await adapters.lease("ann", "mllm")
        second = publish_lora(store, "ann", 2)
        await adapters.sync()  # base, the busy one, the live one: full
        third = publish_lora(store, "ann", 3, activate=False)
        assert await answering(adapters, "ann", third) == third
        assert {f"ann@{first}", f"ann@{third}"} < set(engine.loaded)
        store.activate("ann", third)
        await adapters.sync()
        held = await adapters.lease("ann", "mllm")
        with pytest.raises(GatewayError, match="all 3 places") as refused:
            await adapters.lease("ann", "mllm", second)
        assert refused.value.status == 503
        assert f"ann@{third}" in engine.loaded
        busy.release()
        assert await answering(adapters, "ann", second) == second
        assert f"ann@{first}" not in engine.loaded
        held.release()

    play(scenario)


def test_a_version_that_is_live_again_while_it_gives_its_last_answers_stays(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        first = publish_lora(store, "ann", 1)
        await adapters.sync()
        busy = await adapters.lease("ann", "mllm")
        publish_lora(store, "ann", 2)
        await adapters.sync()
        store.rollback("ann")
        await adapters.sync()
        busy.release()
        await asyncio.sleep(0.2)  # whoever waited for the last of its answers would have unloaded it by now
        assert f"ann@{first}" in engine.loaded
        assert await answering(adapters, "ann") == first

    play(scenario)


def test_versions_asked_for_by_name_do_not_take_everybodys_places(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        engine.capacity = 24
        versions = [publish_lora(store, "ann", seed, activate=seed == 0) for seed in range(30)]
        other = publish_lora(store, "zoe", 99)
        await adapters.sync()
        held = await asyncio.gather(*(adapters.lease("ann", "mllm", v) for v in versions), return_exceptions=True)
        refused = [one for one in held if isinstance(one, GatewayError)]
        assert len(refused) == 30 - OF_ONE_CLIENT - 1  # the live one is not counted
        assert {error.status for error in refused} == {503}
        engine.restart()
        assert await answering(adapters, "zoe") == other

    play(scenario)


def test_more_clients_than_places_take_turns(play: Callable[[Scenario], None]) -> None:
    """The engine itself would give up one that is in use, and read it again from wherever it was."""

    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        engine.capacity = 3
        versions = {f"c{i}": publish_lora(store, f"c{i}", i) for i in range(6)}
        await adapters.sync()
        assert adapters.ready
        assert adapters.counts() == {"clients": 6, "answering": 6, "refused": 0}
        for _ in range(2):
            for client, version in versions.items():
                assert await answering(adapters, client) == version
                assert len(engine.loaded) <= 3
        shutil.rmtree(store.root / "c0" / versions["c0"])  # gone from the store, not from the copy that was verified
        assert await answering(adapters, "c0") == versions["c0"]

    play(scenario)


def test_what_the_engine_reads_is_a_copy_of_what_was_verified(play: Callable[[Scenario], None]) -> None:
    """It reads an adapter again whenever it likes, and verifies nothing."""

    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        version = publish_lora(store, "ann", 1)
        stored = store.root / "ann" / version / WEIGHTS
        verified = stored.read_bytes()
        await adapters.sync()
        stored.write_bytes(lora_files(2)[WEIGHTS])  # in place, as a hard link would follow it
        assert (engine.folders[f"ann@{version}"] / WEIGHTS).read_bytes() == verified
        engine.restart()
        assert await answering(adapters, "ann") == version
        assert (engine.folders[f"ann@{version}"] / WEIGHTS).read_bytes() == verified

    play(scenario)


def test_a_way_back_in_the_middle_of_everything_fails_nobody(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        versions = [publish_lora(store, "ann", seed) for seed in range(3)]
        await adapters.sync()
        stop = asyncio.Event()

        async def ask() -> int:
            asked = 0
            while not stop.is_set():
                for version in (None, versions[0]):
                    resident = await adapters.lease("ann", "mllm", version)
                    await asyncio.sleep(0.001)
                    assert resident.subject.name in engine.loaded
                    resident.release()
                    asked += 1
            return asked

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        for turn in range(30):
            store.activate("ann", versions[turn % 3])
            store.activate("ann", versions[(turn + 1) % 3])
            await adapters.sync()
            store.rollback("ann")
            await adapters.sync()
        stop.set()
        assert min(await asyncio.gather(*asking)) > 30

    play(scenario)


@pytest.mark.parametrize("error", [RecursionError("too deep"), TypeError("unhashable"), re.error("no"), KeyError("r")])
def test_whatever_one_version_raises_is_about_that_version(play: Callable[[Scenario], None], error: Exception) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        good = publish_lora(store, "ann", 1)
        bad = publish_lora(store, "ann", 2)
        other = publish_lora(store, "zoe", 3)
        engine.fails_at[f"ann@{bad}"] = error
        await adapters.sync()
        assert await answering(adapters, "ann") == good
        assert await answering(adapters, "zoe") == other
        assert type(error).__name__ in adapters.refused[f"ann@{bad}"]
        assert adapters.ready

    play(scenario)


def test_a_slow_version_holds_up_nobody_else(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        slow = publish_lora(store, "ann", 1)
        go = asyncio.Event()
        load = engine.load

        async def waiting(subject: Subject) -> None:
            if subject.name == f"ann@{slow}":
                await go.wait()
            await load(subject)

        engine.load = waiting  # type: ignore[method-assign]
        following = asyncio.create_task(adapters.run())
        await asyncio.sleep(0.1)
        version = publish_lora(store, "zoe", 2)
        deadline = asyncio.get_running_loop().time() + 5
        while adapters.live("zoe", "mllm") is None:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.02)
        assert await answering(adapters, "zoe") == version
        assert adapters.live("ann", "mllm") is None
        go.set()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await adapters.close()

    play(scenario)


@pytest.mark.parametrize("is_sound", [True, False])
def test_numbers_that_are_not_finite_are_blamed_on_whom_they_belong_to(
    play: Callable[[Scenario], None], is_sound: bool
) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        first, second = publish_lora(store, "ann", 1), publish_lora(store, "ann", 2)
        await adapters.sync()
        engine.is_sound = is_sound
        busy = await adapters.lease("ann", "mllm")
        await adapters.quarantine(busy.subject, "its numbers were not finite")
        busy.release()
        await adapters.sync()
        assert await answering(adapters, "ann") == (first if is_sound else second)
        assert list(adapters.refused) == ([f"ann@{second}"] if is_sound else [])
        if is_sound:
            with pytest.raises(GatewayError, match="not finite"):
                await adapters.lease("ann", "mllm", second)
            await adapters.sync(retry_refused=True)
            assert await answering(adapters, "ann") == second

    play(scenario)


def test_readiness_says_what_answers(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        version = publish_lora(store, "ann", 1)
        engine.refuses.add(f"ann@{version}")
        await adapters.sync()
        assert not adapters.ready  # somebody is to be answered, and nobody can be
        publish_lora(store, "bob", 2)
        await adapters.sync()
        assert adapters.ready
        assert adapters.counts() == {"clients": 2, "answering": 1, "refused": 1}

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
            await adapters.lease("ann", "mllm")
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
        shutil.rmtree(store.root / "ann" / version)  # what is loaded again is the copy that was verified
        assert await answering(adapters, "ann") == version  # whoever asks first need not wait for the watcher
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
        for _ in range(4):
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
        assert engine.loaded == [f"base@{BASE}"]
        with pytest.raises(GatewayError) as refused:
            await adapters.lease("ann", "mllm")
        assert refused.value.status == 404

    play(scenario)


def test_named_versions_are_loaded_on_demand_and_not_hoarded(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        versions = [publish_lora(store, "ann", seed, activate=seed == 0) for seed in range(SPARE_VERSIONS + 3)]
        await adapters.sync()
        for version in versions:
            assert await answering(adapters, "ann", version) == version
        await adapters.sync()
        assert len(engine.loaded) == SPARE_VERSIONS + 2  # the spare ones, the live one, the base
        assert f"ann@{versions[0]}" in engine.loaded
        with pytest.raises(GatewayError) as refused:
            await adapters.lease("ann", "mllm", "0123456789abcdef")
        assert refused.value.status == 404

    play(scenario)


def test_the_spare_versions_that_go_are_those_used_longest_ago(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        live, *named = [publish_lora(store, "ann", seed, activate=seed == 0) for seed in range(SPARE_VERSIONS + 3)]
        await adapters.sync()
        for version in (*named, named[0]):  # the first is asked for again
            await answering(adapters, "ann", version)
        await adapters.sync()
        assert {f"ann@{version}" for version in (live, *named)} - set(engine.loaded) == {
            f"ann@{named[1]}",
            f"ann@{named[2]}",
        }
        engine.capacity = len(engine.loaded)  # no place is left: whoever comes takes the oldest one's
        await answering(adapters, "ann", named[1])
        assert f"ann@{named[3]}" not in engine.loaded
        assert f"ann@{named[0]}" in engine.loaded

    play(scenario)


def test_nothing_is_verified_while_the_engine_is_down(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, adapters: Adapters) -> None:
        publish_lora(store, "ann", 1)
        engine.generation = None
        await adapters.sync()
        assert engine.history == []
        assert adapters.refused == {}
        with pytest.raises(GatewayError, match="engine is down") as refused:
            await adapters.lease("ann", "mllm")
        assert refused.value.status == 503

    play(scenario)
