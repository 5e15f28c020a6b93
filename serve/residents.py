"""What is loaded: subjects in their hosts, the answers each is giving, and how one leaves after the last answer."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from serve.errors import EngineUnreachableError, GatewayError
from serve.subjects import Subject

log = logging.getLogger(__name__)


class Host(Protocol):
    """A place where the versions of one family run."""

    base_id: str
    max_rank: int | None

    @property
    def generation(self) -> int | None:
        """Changes when what was loaded is gone; None while nothing can be loaded."""

    def require_up(self) -> None:
        """503 where the host cannot answer now."""

    async def load(self, subject: Subject) -> None:
        """Makes the subject ready to answer, and tries it."""

    async def unload(self, subject: Subject) -> None:
        """Undoes ``load``."""


@dataclass
class Resident:
    """A loaded subject and how many answers it is giving."""

    subject: Subject
    generation: int
    users: int = 0
    used_at: float = field(default_factory=time.monotonic)

    def lease(self) -> "Resident":
        """Begins one use; ``release`` ends it."""
        self.users += 1
        self.used_at = time.monotonic()
        return self

    def release(self) -> None:
        """Ends one use that ``lease`` began."""
        self.users -= 1


class Residents:
    """Loaded subjects by name. Loading and unloading are for one caller at a time."""

    def __init__(self, hosts: Mapping[str, Host], drain_timeout_s: float) -> None:
        self.hosts = hosts
        self._drain_timeout_s = drain_timeout_s
        self._loaded: dict[str, Resident] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def get(self, name: str | None) -> Resident | None:
        """The resident of that name, unless its host lost it since."""
        resident = self._loaded.get(name or "")
        if resident is None or resident.generation != self.hosts[resident.subject.family].generation:
            return None
        return resident

    async def bring(self, subject: Subject) -> None:
        """Loads the subject, unless it is there."""
        if self.get(subject.name) is not None:
            return
        host = self.hosts[subject.family]
        generation = host.generation
        if generation is None:
            raise EngineUnreachableError
        await host.load(subject)
        self._loaded[subject.name] = Resident(subject, generation)
        log.info("loaded %s", subject.name)

    def retire(self, name: str) -> None:
        """Unloads the subject once it has finished what it is answering, or took too long over it."""
        if name in self._loaded:
            task = asyncio.create_task(self._drain(self._loaded[name]))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def retire_extra(self, kept: set[str], spare: int) -> None:
        """Retires idle subjects that are not ``kept``, but for the ``spare`` used last."""
        extra = [resident for name, resident in self._loaded.items() if name not in kept and not resident.users]
        for resident in sorted(extra, key=lambda r: r.used_at)[: max(len(extra) - spare, 0)]:
            self.retire(resident.subject.name)

    async def _drain(self, resident: Resident) -> None:
        deadline = time.monotonic() + self._drain_timeout_s
        while resident.users and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        subject = resident.subject
        if self._loaded.get(subject.name) is not resident:
            return
        del self._loaded[subject.name]  # before the call: whoever wants it from here on loads it anew
        try:
            await self.hosts[subject.family].unload(subject)
            log.info("unloaded %s", subject.name)
        except GatewayError:
            return  # the engine is gone, and the adapter with it
