"""Which versions answer: follows the store's pointers, and never lets go of a good version for a bad one.

A version's way: verified on disk → copied → loaded under ``client@version`` → tried → made the client's own; the one
before it stays loaded, for a way back, until its place is needed. Every client is followed by a task of its own for
each family that it has versions of, so that one can be slow, or fail in any way, for that client and family alone.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial

from adapters_store.store import Live, Store, StoreError
from adapters_store.versions.manifest import FAMILIES, Family
from serve.errors import EngineUnreachableError, GatewayError, other_route, unavailable
from serve.http.auth import SHARED
from serve.settings import Settings
from serve.versions.copies import Copies
from serve.versions.loaded_versions import Host, LoadedVersion, LoadedVersions
from serve.versions.pointers import Place, names_of, read_pointers, versions_of
from serve.versions.prepared import Prepared
from serve.versions.refused import Refused
from serve.versions.subjects import Subject

log = logging.getLogger(__name__)

SPARE_VERSIONS = 16  # versions kept loaded that are not live: replaced ones, and those asked for by name
FAILURE_PAUSE_S = 5.0
PATIENCE_S = 10.0  # a host that came up is ready then, whoever's version is still being tried
LATEST_LOOK_S = 30.0  # a gateway that has not seen its store for this long is not ready


class Adapters:
    """The versions in use. ``fixed`` subjects answer under their own name and come from no store (the base)."""

    def __init__(
        self, store: Store, hosts: Mapping[str, Host], fixed: Sequence[Subject], copies: Copies, settings: Settings
    ) -> None:
        self._store = store
        self._hosts = hosts
        self._fixed = {subject.client: subject for subject in fixed}
        self._settings = settings
        self._live: dict[Place, Subject] = {}  # what answers
        self._prepared = Prepared(store, hosts, copies)
        self._loaded_versions = LoadedVersions(hosts, self._keeps)
        self._refused = Refused(settings.retry_refused_s)
        self._following: dict[Place, asyncio.Task[None]] = {}  # their followers at work
        self._wake = asyncio.Event()
        self._reconciled: dict[str, int | None] = {}
        self._generations_at_last_look: dict[str, int | None] = {}
        self._generations_since = 0.0
        self._pointers: Mapping[Place, Live | None] = {}  # as of the last look; None: it could not be read
        self._looked_at = -LATEST_LOOK_S

    @property
    def refused(self) -> dict[str, str]:
        """Name of each version that is refused → why."""
        return self._refused.reasons

    def counts(self) -> dict[str, int]:
        """How many clients there are in the store, how many of them are answered, and how many versions are refused.

        A client is answered where everything is that it has a readable pointer to.
        """
        wanted: dict[str, list[Family]] = {}
        for (client, family), pointer in self._pointers.items():
            wanted.setdefault(client, []).extend([family] * (pointer is not None))
        answering = sum(
            all(self.live(client, family) for family in families) and any(self.answering(client))
            for client, families in wanted.items()
        )
        return {"clients": len(wanted), "answering": answering, "refused": len(self.refused)}

    @property
    def ready(self) -> bool:
        """Whether requests are answered: every host is up, the store was followed since, and not all of it refused."""
        generations = self._generations()
        followed = None not in generations.values() and generations == self._reconciled
        seen = time.monotonic() - self._looked_at < LATEST_LOOK_S + self._settings.watch_interval_s
        return followed and seen and (not self._pointers or any(self.live(*place) for place in self._pointers))

    def live(self, client: str, family: Family) -> Subject | None:
        """What answers for the client at the moment, asked for that."""
        subject = self._live.get((client, family))
        return None if subject is None or self._hosts[family].generation is None else subject

    def answering(self, client: str) -> list[Subject]:
        """What answers for the client at the moment, one subject a family."""
        return [subject for family in FAMILIES if (subject := self.live(client, family)) is not None]

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

    async def lease(self, client: str, family: Family, version: str | None = None) -> LoadedVersion:
        """The loaded version to answer with, to be released after the answer; 404 where there is none of that name.

        400 where the client, or the version that is named, is of another family alone.
        """
        subject = self._live.get((client, family)) if version is None else self._prepared.get(client, version)
        if subject is None:
            subject = await self._explain_or_prepare(client, family, version)
        if subject.family != family:
            raise other_route(subject.name, subject.family)
        if self._refused.now(subject.name):
            raise unavailable(self.refused[subject.name], retry_after_s=60)
        try:
            return await self._loaded_versions.lease(subject)
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
        if self._live.get((subject.client, subject.family)) == subject:
            del self._live[subject.client, subject.family]
        self.wake()

    async def _look(self) -> None:
        """Sets a follower to work for every client and family that has none at work."""
        self._generations_seen()
        for subject in self._fixed.values():
            if self._hosts[subject.family].generation is not None:
                self._set_to_work((subject.client, subject.family), partial(self._bring_fixed, subject))
        self._pointers = await asyncio.to_thread(read_pointers, self._store)
        for place, pointer in self._pointers.items():
            if pointer is not None:
                self._set_to_work(place, partial(self._follow, place, pointer))
        self._forget()
        self._looked_at = time.monotonic()

    def _set_to_work(self, place: Place, work: Callable[[], Coroutine[None, None, None]]) -> None:
        if place not in self._following:
            task = self._following[place] = asyncio.create_task(work(), name=f"follow {' '.join(place)}")
            task.add_done_callback(lambda _: self._following.pop(place, None))

    async def _settle(self, timeout_s: float | None = None) -> None:
        """Waits for the followers at work. Once all are through, or took too long, the hosts count as reconciled."""
        if self._following:
            await asyncio.wait(self._following.values(), timeout=timeout_s)
        if not self._following or time.monotonic() - self._generations_since > PATIENCE_S:
            self._reconciled = self._generations_at_last_look

    async def _clean_up(self) -> None:
        """Gives up what nobody needs: idle versions beyond the spare ones, and those that the store has no more."""
        unwanted = {name for name in self._prepared if self._refused.now(name)}
        unwanted |= await asyncio.to_thread(self._prepared.gone)
        await self._loaded_versions.trim(SPARE_VERSIONS, unwanted)
        await self._prepared.give_up(lambda name: self._keeps(name) or self._loaded_versions.holds(name))

    async def _follow(self, place: Place, pointer: Live) -> None:
        """Brings what the pointer names; where that cannot be and nothing answers yet, the newest before it."""
        client, family = place
        current = self._live.get(place)
        if current is not None and self._refused.now(current.name):
            del self._live[place]
        for version in [pointer.version] if place in self._live else [pointer.version, *reversed(pointer.previous)]:
            if await self._try(client, version):
                subject = await self._prepared.make(client, version)
                if subject.family == family:  # not for a pointer to say
                    self._live[place] = subject
                    return

    async def _try(self, client: str, version: str) -> bool:
        """Whether the version is now loaded. If not, and it is to blame, the reason is kept: whatever it was."""
        name = f"{client}@{version}"
        if self._refused.now(name):
            return False
        try:
            await self._loaded_versions.bring(await self._prepared.make(client, version))
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

    async def _bring_fixed(self, subject: Subject) -> None:
        """The base, without which nobody is served: what goes wrong is said, and tried again at the next look."""
        try:
            await self._loaded_versions.bring(subject)
            self._live[subject.client, subject.family] = subject
        except (GatewayError, ValueError) as error:
            log.error("%s cannot answer: %s", subject.name, error)

    async def _explain_or_prepare(self, client: str, family: Family, version: str | None) -> Subject:
        """The version of the store that was named; where there is nothing to answer with, why."""
        fixed = self._fixed.get(client)
        known = [fixed.version] if fixed else await asyncio.to_thread(versions_of, self._store, client)
        if not known:
            raise GatewayError(404, f"client {client!r} is not known here", "model")
        if version is not None and version not in known:
            raise GatewayError(404, f"client {client!r} has no version {version!r}", "model")
        if version is None or fixed:
            if (subject := self._live.get((client, family))) is not None:
                return subject
            if (client, family) not in self._pointers and (others := self.answering(client)):
                raise other_route(client, others[0].family)
            for host in self._hosts.values():
                host.require_up()
            raise unavailable(self._reason(client, family))
        if not await self._try(client, version):
            raise unavailable(self.refused.get(f"{client}@{version}", f"{client}@{version} cannot be loaded now"), 60)
        return await self._prepared.make(client, version)

    def _reason(self, client: str, family: Family) -> str:
        """Why nothing answers for the client, asked for that: what was said of the newest version it could be."""
        pointers = [self._pointers.get((client, one)) for one in (family, *FAMILIES)]
        named = [name for pointer in pointers if pointer for name in names_of(client, pointer)]
        return next(
            (self.refused[name] for name in named if name in self.refused),
            f"client {client!r} has no live version that is loaded yet",
        )

    def _keeps(self, name: str) -> bool:
        """Whether that version is live."""
        client = name.partition("@")[0]
        subjects = [self._fixed.get(client), *(self._live.get((client, family)) for family in FAMILIES)]
        return any(subject is not None and subject.name == name for subject in subjects)

    def _forget(self) -> None:
        """Drops clients that are gone, and what was noted of versions that no pointer leads to any more."""
        fixed = {(subject.client, subject.family) for subject in self._fixed.values()}
        for place in self._live.keys() - self._pointers.keys() - fixed:
            del self._live[place]
        wanted = {name for (client, _), live in self._pointers.items() if live for name in names_of(client, live)}
        unreadable = tuple(f"{client}@" for (client, _), live in self._pointers.items() if live is None)
        self._refused.keep(lambda name: name in wanted or name.startswith(unreadable))

    def _generations(self) -> dict[str, int | None]:
        return {family: host.generation for family, host in self._hosts.items()}

    def _generations_seen(self) -> None:
        generations = self._generations()
        if generations != self._generations_at_last_look:
            self._generations_at_last_look, self._generations_since = generations, time.monotonic()
