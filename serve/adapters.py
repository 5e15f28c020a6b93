"""Which versions answer: follows the store's pointers, and never lets go of a good version for a bad one.

A version's way: verified on disk → copied → loaded under ``client@version`` → tried → made the client's own; the one
before it stays loaded, for a way back, until its place is needed. Every client is followed by a task of its own, so
that one client's version can be slow, or fail in any way, for that client alone.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial

from adapters_store.store import Live, Store, StoreError
from serve.auth import SHARED
from serve.copies import Copies
from serve.errors import EngineUnreachableError, GatewayError, unavailable
from serve.refused import Refused
from serve.residents import Host, Resident, Residents
from serve.settings import Settings
from serve.subjects import Subject, of_artefact

log = logging.getLogger(__name__)

SPARE_VERSIONS = 16  # versions kept loaded that are not live: replaced ones, and those asked for by name
PREPARED_AT_ONCE = 2  # versions read and verified at the same time
FAILURE_PAUSE_S = 5.0
PATIENCE_S = 10.0  # a host that came up is ready then, whoever's version is still being tried
COPY_KEPT_S = 60.0  # by then the engine has done with the last request for a version that was unloaded
LATEST_LOOK_S = 30.0  # a gateway that has not seen its store for this long is not ready


class Adapters:
    """The versions in use. ``fixed`` subjects answer under their own name and come from no store (the base)."""

    def __init__(
        self, store: Store, hosts: Mapping[str, Host], fixed: Sequence[Subject], copies: Copies, settings: Settings
    ) -> None:
        self._store = store
        self._hosts = hosts
        self._fixed = {subject.client: subject for subject in fixed}
        self._copies = copies
        self._settings = settings
        self._live: dict[str, Subject] = {}  # client → what answers
        self._prepared: dict[str, Subject] = {}  # name → verified and copied
        self._residents = Residents(hosts, self._keeps)
        self._refused = Refused(settings.retry_refused_s)
        self._preparing = asyncio.Semaphore(PREPARED_AT_ONCE)
        self._following: dict[str, asyncio.Task[None]] = {}  # client → its follower at work
        self._wake = asyncio.Event()
        self._reconciled: dict[str, int | None] = {}
        self._generations_at_last_look: dict[str, int | None] = {}
        self._generations_since = 0.0
        self._unused_since: dict[str, float] = {}  # prepared versions that are neither live nor loaded
        self._wanted: frozenset[str] = frozenset()  # clients with a pointer
        self._looked_at = -LATEST_LOOK_S

    @property
    def refused(self) -> dict[str, str]:
        """Name of each version that is refused → why."""
        return self._refused.reasons

    @property
    def answering(self) -> int:
        """How many of the store's clients have a version that answers."""
        return sum(self.live(client) is not None for client in self._wanted)

    @property
    def ready(self) -> bool:
        """Whether requests are answered: every host is up, the store was followed since, and not all of it refused."""
        generations = self._generations()
        followed = None not in generations.values() and generations == self._reconciled
        seen = time.monotonic() - self._looked_at < LATEST_LOOK_S + self._settings.watch_interval_s
        return followed and seen and (self.answering > 0 or not self._wanted)

    def live(self, client: str) -> Subject | None:
        """What answers for the client at the moment."""
        subject = self._live.get(client)
        return None if subject is None or self._hosts[subject.family].generation is None else subject

    def wake(self) -> None:
        """Has the store looked at now."""
        self._wake.set()

    async def run(self) -> None:
        """Follows the store until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self._look()
                await self._settle(self._settings.watch_interval_s)
                await self._clean_up()
            except Exception:
                log.exception("following the store failed; it goes on in %.0f s", FAILURE_PAUSE_S)
                await asyncio.sleep(FAILURE_PAUSE_S)
            try:
                await asyncio.wait_for(self._wake.wait(), self._settings.watch_interval_s)
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Ends what follows the store."""
        tasks = list(self._following.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def sync(self, retry_refused: bool = False) -> None:
        """One look at the store: what is live there answers here afterwards, or is refused with a reason."""
        if retry_refused:
            self._refused.look_again()
        await self._settle()  # those at work may have read an older pointer
        await self._look()
        await self._settle()
        await self._clean_up()

    async def lease(self, client: str, version: str | None = None) -> Resident:
        """The loaded version to answer with, to be released after the answer; 404 where there is none of that name."""
        subject = self._live.get(client) if version is None else self._prepared.get(f"{client}@{version}")
        if subject is None:
            subject = await self._explain_or_prepare(client, version)
        if self._refused.now(subject.name):
            raise unavailable(self.refused[subject.name], retry_after_s=60)
        try:
            return await self._residents.lease(subject)
        except ValueError as error:
            raise unavailable(f"{subject.name} cannot answer: {error}", retry_after_s=60) from error

    async def quarantine(self, subject: Subject, why: str) -> None:
        """Takes a version out of use whose numbers were found not to be finite, unless the host itself is at fault.

        It is not tried again before somebody asks for it (reload), and what answered before answers again. What every
        key may ask is not taken from all of them by one that found such a question.
        """
        if subject.client in SHARED or self._refused.now(subject.name):
            return
        if not await self._hosts[subject.family].sound():
            return
        self._refused.add(subject.name, why, for_good=True)
        if self._live.get(subject.client) == subject:
            del self._live[subject.client]
        self.wake()

    async def _look(self) -> None:
        """Sets a follower to work for every client that has none at work."""
        self._generations_seen()
        for subject in self._fixed.values():
            if self._hosts[subject.family].generation is not None:
                self._set_to_work(subject.client, partial(self._bring_fixed, subject))
        pointers = await asyncio.to_thread(self._pointers)
        for client, pointer in pointers.items():
            if pointer is not None:
                self._set_to_work(client, partial(self._follow, client, pointer))
        self._forget(pointers)
        self._wanted = frozenset(pointers)
        self._looked_at = time.monotonic()

    def _set_to_work(self, client: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        if client not in self._following:
            task = self._following[client] = asyncio.create_task(work(), name=f"follow {client}")
            task.add_done_callback(lambda _: self._following.pop(client, None))

    async def _settle(self, timeout_s: float | None = None) -> None:
        """Waits for the followers at work. Once all are through, or took too long, the hosts count as reconciled."""
        if self._following:
            await asyncio.wait(self._following.values(), timeout=timeout_s)
        if not self._following or time.monotonic() - self._generations_since > PATIENCE_S:
            self._reconciled = self._generations_at_last_look

    async def _clean_up(self) -> None:
        """Gives up what nobody needs: idle versions beyond the spare ones, and those that the store has no more."""
        names = [name for name in self._prepared if not self._keeps(name)]
        gone = await asyncio.to_thread(self._gone, names)
        await self._residents.trim(SPARE_VERSIONS, {*gone, *filter(self._refused.now, names)})
        now = time.monotonic()
        for name in names:
            if self._keeps(name) or self._residents.holds(name):
                self._unused_since.pop(name, None)
            elif now - self._unused_since.setdefault(name, now) > COPY_KEPT_S:
                del self._prepared[name], self._unused_since[name]
                await asyncio.to_thread(self._copies.remove, name)

    async def _follow(self, client: str, pointer: Live) -> None:
        """Brings what the pointer names; where that cannot be and nothing answers yet, the newest before it."""
        current = self._live.get(client)
        if current is not None and self._refused.now(current.name):
            del self._live[client]
        for version in [pointer.version] if client in self._live else [pointer.version, *reversed(pointer.previous)]:
            if await self._try(client, version):
                self._live[client] = self._prepared[f"{client}@{version}"]
                return

    async def _try(self, client: str, version: str) -> bool:
        """Whether the version is now loaded. If not, and it is to blame, the reason is kept: whatever it was."""
        name = f"{client}@{version}"
        if self._refused.now(name):
            return False
        try:
            subject = await self._prepare(client, version)
            await self._residents.bring(subject)
        except EngineUnreachableError:
            log.warning("the engine went away while %s was loaded", name)  # it wakes us when it is back
            self._refused.add_deadly(name)
        except GatewayError as error:
            if None not in self._generations().values():  # a host that is not up yet is no fault of the version
                self._refused.add(name, error.message)
        except (StoreError, ValueError) as error:
            self._refused.add(name, str(error))
        except Exception as error:  # an artefact is somebody else's: whatever comes out of it is about it alone
            log.exception("%s failed in a way of its own", name)
            self._refused.add(name, f"{type(error).__name__} while it was loaded")
        else:
            self._refused.forgive(name)
            return True
        return False

    async def _prepare(self, client: str, version: str) -> Subject:
        """Verifies and copies a version, unless that was done."""
        name = f"{client}@{version}"
        if name in self._prepared:
            return self._prepared[name]
        async with self._preparing:
            manifest = (await asyncio.to_thread(self._store.artefact, client, version)).manifest
            host = self._hosts.get(manifest.family)
            if host is None:
                raise StoreError(f"{name} is refused: this gateway serves no base of family {manifest.family!r}")
            host.require_up()
            artefact, files = await asyncio.to_thread(
                self._store.read, client, version, base_id=host.base_id, max_rank=host.max_rank
            )
            folder = await asyncio.to_thread(self._copies.make, name, files)
        return self._prepared.setdefault(name, of_artefact(artefact, folder))

    async def _bring_fixed(self, subject: Subject) -> None:
        """The base, without which nobody is served: what goes wrong is said, and tried again at the next look."""
        try:
            await self._residents.bring(subject)
            self._live[subject.client] = subject
        except (GatewayError, ValueError) as error:
            log.error("%s cannot answer: %s", subject.name, error)

    async def _explain_or_prepare(self, client: str, version: str | None) -> Subject:
        """The version of the store that was named; where there is nothing to answer with, why."""
        fixed = self._fixed.get(client)
        known = [fixed.version] if fixed else await asyncio.to_thread(self._versions, client)
        if not known:
            raise GatewayError(404, f"client {client!r} is not known here", "model")
        if version is not None and version not in known:
            raise GatewayError(404, f"client {client!r} has no version {version!r}", "model")
        if version is None or fixed:
            for host in self._hosts.values():
                host.require_up()
            if fixed and (subject := self._live.get(client)) is not None:
                return subject
            reasons = [why for name, why in self.refused.items() if name.startswith(f"{client}@")]
            raise unavailable(reasons[-1] if reasons else f"client {client!r} has no live version that is loaded yet")
        if not await self._try(client, version):
            raise unavailable(self.refused.get(f"{client}@{version}", f"{client}@{version} cannot be loaded now"), 60)
        return self._prepared[f"{client}@{version}"]

    def _keeps(self, name: str) -> bool:
        """Whether that version is live."""
        client, _, version = name.partition("@")
        subject = self._live.get(client) or self._fixed.get(client)
        return subject is not None and subject.version == version

    def _forget(self, pointers: Mapping[str, Live | None]) -> None:
        """Drops clients that are gone, and what was noted of versions that no pointer leads to any more."""
        for client in self._live.keys() - pointers.keys() - self._fixed.keys():
            del self._live[client]
        wanted = {f"{client}@{v}" for client, live in pointers.items() if live for v in (live.version, *live.previous)}
        unreadable = tuple(f"{client}@" for client, live in pointers.items() if live is None)
        self._refused.keep(lambda name: name in wanted or name.startswith(unreadable))

    def _generations(self) -> dict[str, int | None]:
        return {family: host.generation for family, host in self._hosts.items()}

    def _generations_seen(self) -> None:
        generations = self._generations()
        if generations != self._generations_at_last_look:
            self._generations_at_last_look, self._generations_since = generations, time.monotonic()

    def _pointers(self) -> dict[str, Live | None]:
        """Every client with a pointer; None where it cannot be read, which changes nothing for its client."""
        pointers: dict[str, Live | None] = {}
        for client in self._store.clients():
            try:
                live = self._store.live(client)
            except Exception as error:  # whatever lies there is that client's own
                log.warning("the pointer of %s cannot be read: %s", client, error)
                pointers[client] = None
                continue
            if live is not None:
                pointers[client] = live
        return pointers

    def _gone(self, names: Sequence[str]) -> set[str]:
        """Those of the versions that the store has no more."""
        return {name for name in names if not (self._store.root / name.replace("@", "/") / "manifest.json").exists()}

    def _versions(self, client: str) -> list[str]:
        try:
            return self._store.versions(client)
        except StoreError as error:
            raise GatewayError(404, str(error), "model") from error
