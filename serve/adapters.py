"""Which versions answer: follows the store's pointers, and never lets go of a good version for a bad one.

A version's way: verified on disk → loaded under ``client@version`` → tried → made the client's own → the one before it
finishes what it began → unloaded.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from adapters_store.store import Live, Store, StoreError
from serve.errors import EngineUnreachableError, GatewayError, unavailable
from serve.residents import Host, Resident, Residents
from serve.settings import Settings
from serve.subjects import Subject, of_artefact

log = logging.getLogger(__name__)

SPARE_VERSIONS = 16  # versions kept loaded that were asked for by name and are not live
FAILURE_PAUSE_S = 5.0
DEADLY_LOADS = 2  # how often the engine may end while it loads a version, before that version is refused


class Adapters:
    """The versions in use. ``fixed`` subjects answer under their own name and come from no store (the base)."""

    def __init__(self, store: Store, hosts: Mapping[str, Host], fixed: Sequence[Subject], settings: Settings) -> None:
        self._store = store
        self._hosts = hosts
        self._fixed = {subject.client: subject for subject in fixed}
        self._settings = settings
        self._residents = Residents(hosts, settings.drain_timeout_s)
        self._live: dict[str, str] = {}  # client → name of the subject that answers
        self._lock = asyncio.Lock()  # one change at a time
        self._wake = asyncio.Event()
        self._deadly: dict[str, int] = {}
        self._refused_until: dict[str, float] = {}
        self._reconciled: dict[str, int | None] = {}
        self.refused: dict[str, str] = {}  # subject name → why

    @property
    def ready(self) -> bool:
        """Whether every host is up, and every pointer was followed or refused since it came up."""
        generations = self._generations()
        return None not in generations.values() and generations == self._reconciled

    def live(self, client: str) -> Subject | None:
        """What answers for the client at the moment."""
        resident = self._residents.get(self._live.get(client))
        return None if resident is None else resident.subject

    def wake(self) -> None:
        """Has the store looked at now."""
        self._wake.set()

    async def run(self) -> None:
        """Follows the store until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self.sync()
            except EngineUnreachableError:
                log.warning("the engine went away while the store was followed")  # it wakes us when it is back
            except Exception:
                log.exception("following the store failed; it goes on in %.0f s", FAILURE_PAUSE_S)
                await asyncio.sleep(FAILURE_PAUSE_S)
            try:
                await asyncio.wait_for(self._wake.wait(), self._settings.watch_interval_s)
            except TimeoutError:
                continue

    async def sync(self, retry_refused: bool = False) -> None:
        """One look at the store: what is live there answers here afterwards, or is refused with a reason."""
        async with self._lock:
            generations = self._generations()
            if retry_refused:
                self._refused_until.clear()
            for subject in self._fixed.values():
                if generations[subject.family] is not None:
                    await self._residents.bring(subject)
                    self._live[subject.client] = subject.name
            pointers = await asyncio.to_thread(self._pointers)
            for client, pointer in pointers.items():
                if pointer is not None:
                    await self._follow(client, pointer)
            for client in self._live.keys() - pointers.keys() - self._fixed.keys():
                self._residents.retire(self._live.pop(client))
            self._residents.retire_extra(set(self._live.values()), SPARE_VERSIONS)
            self._forget_refusals(pointers)
            self._reconciled = generations

    async def lease(self, client: str, version: str | None = None) -> Resident:
        """The loaded version to answer with, to be released after the answer; 404 where there is none of that name."""
        name = self._live.get(client) if version is None else f"{client}@{version}"
        resident = self._residents.get(name)
        if resident is None:
            await self._explain_or_load(client, version)
            resident = self._residents.get(f"{client}@{version}")
        if resident is None:
            raise unavailable(f"{client}@{version} was unloaded while it was asked for")
        return resident.lease()

    async def _explain_or_load(self, client: str, version: str | None) -> None:
        """Loads the version of the store that was named; otherwise says why there is nothing to answer with."""
        fixed = self._fixed.get(client)
        known = [fixed.version] if fixed else await asyncio.to_thread(self._versions, client)
        if not known:
            raise GatewayError(404, f"client {client!r} is not known here", "model")
        if version is not None and version not in known:
            raise GatewayError(404, f"client {client!r} has no version {version!r}", "model")
        if version is None or fixed:
            for host in self._hosts.values():
                host.require_up()
            reasons = [why for name, why in self.refused.items() if name.startswith(f"{client}@")]
            raise unavailable(reasons[-1] if reasons else f"client {client!r} has no live version that is loaded yet")
        async with self._lock:
            try:
                await self._bring(client, version)
            except (StoreError, ValueError) as error:
                raise unavailable(str(error), retry_after_s=60) from error

    async def _follow(self, client: str, pointer: Live) -> None:
        """Brings what the pointer names; where that cannot be and nothing answers yet, the newest before it."""
        current = self._live.get(client)
        answering = self._residents.get(current) is not None
        for version in [pointer.version] if answering else [pointer.version, *reversed(pointer.previous)]:
            name = f"{client}@{version}"
            if answering and name == current:
                return
            if time.monotonic() >= self._refused_until.get(name, 0) and await self._try(client, version):
                self._live[client] = name
                if answering and current is not None:
                    self._residents.retire(current)
                return

    async def _try(self, client: str, version: str) -> bool:
        """Whether the version is now loaded; if not, and it is to blame, the reason is kept."""
        name = f"{client}@{version}"
        try:
            await self._bring(client, version)
        except EngineUnreachableError:
            self._deadly[name] = self._deadly.get(name, 0) + 1
            if self._deadly[name] < DEADLY_LOADS:
                raise
            self._refuse(name, f"{name} is refused: the engine ended while loading it")
            return False
        except StoreError as error:
            self._refuse(name, str(error))
            return False
        except ValueError as error:
            self._refuse(name, f"{name} is refused: {error}")
            return False
        except GatewayError as error:
            if None not in self._generations().values():  # a host that is not up yet is no fault of the version
                self._refuse(name, f"{name} is refused: {error.message}")
            return False
        self._forgive(name)
        return True

    async def _bring(self, client: str, version: str) -> None:
        """Verifies and loads a version, unless it is there."""
        if self._residents.get(f"{client}@{version}") is not None:
            return
        manifest = (await asyncio.to_thread(self._store.artefact, client, version)).manifest
        host = self._hosts.get(manifest.family)
        if host is None:
            raise StoreError(
                f"{client}@{version} is refused: this gateway serves no base of family {manifest.family!r}"
            )
        host.require_up()
        artefact = await asyncio.to_thread(
            self._store.verify, client, version, base_id=host.base_id, max_rank=host.max_rank
        )
        await self._residents.bring(of_artefact(artefact))

    def _refuse(self, name: str, why: str) -> None:
        if self.refused.get(name) != why:
            log.error("%s", why)
        self.refused[name] = why
        self._refused_until[name] = time.monotonic() + self._settings.retry_refused_s

    def _forgive(self, name: str) -> None:
        self.refused.pop(name, None)
        self._deadly.pop(name, None)
        self._refused_until.pop(name, None)

    def _forget_refusals(self, pointers: Mapping[str, Live | None]) -> None:
        """Drops what was noted of versions that no pointer leads to any more."""
        wanted = {f"{client}@{v}" for client, live in pointers.items() if live for v in (live.version, *live.previous)}
        unreadable = tuple(f"{client}@" for client, live in pointers.items() if live is None)
        for name in list(self.refused):
            if name not in wanted and not name.startswith(unreadable):
                self._forgive(name)

    def _generations(self) -> dict[str, int | None]:
        return {family: host.generation for family, host in self._hosts.items()}

    def _pointers(self) -> dict[str, Live | None]:
        """Every client with a pointer; None where it cannot be read, which changes nothing for its client."""
        pointers: dict[str, Live | None] = {}
        for client in self._store.clients():
            try:
                live = self._store.live(client)
            except StoreError as error:
                log.warning("%s", error)
                pointers[client] = None
                continue
            if live is not None:
                pointers[client] = live
        return pointers

    def _versions(self, client: str) -> list[str]:
        try:
            return self._store.versions(client)
        except StoreError as error:
            raise GatewayError(404, str(error), "model") from error
