"""What is loaded: subjects in their hosts, and the answers each is giving. Nothing that is giving one is unloaded."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakValueDictionary

from serve.errors import EngineUnreachableError, GatewayError, unavailable
from serve.versions.subjects import BASE, Subject

log = logging.getLogger(__name__)

OF_ONE_CLIENT = 16  # versions of one client in one family, beside its live one, that may be giving answers at once


class Host(Protocol):
    """A place where the versions of one family run."""

    base_id: str
    max_rank: int | None
    capacity: int | None
    """How many subjects it holds; None: as many as come."""

    @property
    def generation(self) -> int | None:
        """Changes when what was loaded is gone; None while nothing can be loaded."""

    def require_up(self) -> None:
        """503 where the host cannot answer now."""

    async def load(self, subject: Subject) -> None:
        """Makes the subject ready to answer, and tries it."""

    async def unload(self, subject: Subject) -> None:
        """Undoes ``load``."""

    async def sound(self) -> bool:
        """Whether the host itself computes as it should; one that does not sees to it that it will."""


@dataclass
class LoadedVersion:
    """A loaded subject and how many answers it is giving."""

    subject: Subject
    generation: int
    users: int = 0
    used_at: float = field(default_factory=time.monotonic)

    def lease(self) -> "LoadedVersion":
        """Begins one use; ``release`` ends it."""
        self.users += 1
        self.used_at = time.monotonic()
        return self

    def release(self) -> None:
        """Ends one use that ``lease`` began."""
        self.users -= 1
        self.used_at = time.monotonic()


class LoadedVersions:
    """Loaded subjects by name. ``keeps`` says which names are live: of the idle ones those make room last."""

    def __init__(self, hosts: Mapping[str, Host], keeps: Callable[[str], bool]) -> None:
        self.hosts = hosts
        self._keeps = keeps
        self._loaded: dict[str, LoadedVersion] = {}
        self._changes: Counter[str] = Counter()  # loads and unloads under way, by family: each holds a place
        self._coming: Counter[tuple[str, str]] = Counter()  # loads under way, by client and family
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # one change of a name at a time

    def get(self, name: str | None) -> LoadedVersion | None:
        """The held of that name, unless its host lost it since."""
        held = self._loaded.get(name or "")
        if held is None or held.generation != self.hosts[held.subject.family].generation:
            return None
        return held

    def holds(self, name: str) -> bool:
        """Whether the host has the subject of that name, or somebody is still being answered by it."""
        held = self._loaded.get(name)
        return held is not None and (held.users > 0 or self.get(name) is not None)

    async def lease(self, subject: Subject) -> LoadedVersion:
        """The subject, loaded if need be, and in use until it is released."""
        return (await self.bring(subject)).lease()

    async def bring(self, subject: Subject) -> LoadedVersion:
        """The subject, loaded if it was not. 503 where no place for it can be made now."""
        if (found := self.get(subject.name)) is not None:
            return found
        async with self._lock(subject.name):
            if (found := self.get(subject.name)) is not None:
                return found
            return await self._load(subject)

    async def trim(self, spare: int, gone: Collection[str]) -> list[str]:
        """Unloads idle subjects that are not live, but for the ``spare`` used last and not ``gone``; their names."""
        idle = sorted(self._idle(lambda r: not self._keeps(r.subject.name)), key=lambda r: r.used_at, reverse=True)
        staying = [held for held in idle if held.subject.name not in gone][:spare]
        leaving = [held for held in idle if held not in staying]
        return [held.subject.name for held in leaving if await self._unload(held)]

    async def _load(self, subject: Subject) -> LoadedVersion:
        host = self.hosts[subject.family]
        self._check_share(subject)
        self._changes[subject.family] += 1
        self._coming[subject.client, subject.family] += 1
        try:
            await self._make_room(subject.family)
            host.require_up()
            generation = host.generation
            await host.load(subject)
            if generation is None or host.generation != generation:
                raise EngineUnreachableError
        finally:
            self._changes[subject.family] -= 1
            self._coming[subject.client, subject.family] -= 1
        held = self._loaded[subject.name] = LoadedVersion(subject, generation)
        log.info("loaded %s", subject.name)
        return held

    def _check_share(self, subject: Subject) -> None:
        """503 where a client has so many versions at work that it would take the places of others."""
        whose = subject.client, subject.family
        at_work = sum(r.users > 0 and (r.subject.client, r.subject.family) == whose for r in self._loaded.values())
        if not self._keeps(subject.name) and at_work + self._coming[whose] > OF_ONE_CLIENT:
            raise unavailable(f"{OF_ONE_CLIENT} other versions of {subject.client!r} are giving answers", 1)

    async def _make_room(self, family: str) -> None:
        """Unloads idle subjects until the loads under way find places; never holds more than the host does."""
        capacity = self.hosts[family].capacity
        while capacity is not None and self._held(family) + self._changes[family] > capacity:
            idle = self._idle(lambda r: r.subject.family == family and r.subject.client != BASE)
            if not idle:
                raise unavailable(f"all {capacity} places for adapters are giving answers", retry_after_s=1)
            await self._unload(min(idle, key=lambda r: (self._keeps(r.subject.name), r.used_at)))

    def _held(self, family: str) -> int:
        return sum(self.get(name) is not None for name, r in self._loaded.items() if r.subject.family == family)

    def _idle(self, which: Callable[[LoadedVersion], bool]) -> list[LoadedVersion]:
        return [r for r in self._loaded.values() if not r.users and which(r)]

    async def _unload(self, held: LoadedVersion) -> bool:
        """Whether it was unloaded here: not where it is in use again, or went another way."""
        subject = held.subject
        if self._loaded.get(subject.name) is not held or held.users:
            return False
        lost = self.get(subject.name) is None
        del self._loaded[subject.name]  # before anything is awaited: whoever wants it from here on waits, and loads it
        self._changes[subject.family] += 1
        try:
            async with self._lock(subject.name):
                if not lost:
                    await self.hosts[subject.family].unload(subject)
                    log.info("unloaded %s", subject.name)
        except GatewayError as error:
            log.warning("%s was not unloaded: %s", subject.name, error)  # mostly, the engine is gone and it with it
        finally:
            self._changes[subject.family] -= 1
        return True

    def _lock(self, name: str) -> asyncio.Lock:
        lock = self._changing.get(name)
        if lock is None:
            lock = self._changing[name] = asyncio.Lock()
        return lock
