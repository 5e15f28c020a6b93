"""Versions that are ready to be loaded: verified once, copied, and known by name until nobody can need the copy."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping

from adapters_store.store import Store, StoreError
from serve.versions.copies import Copies
from serve.versions.loaded_versions import Host
from serve.versions.subjects import Subject, of_artefact

AT_ONCE = 2  # versions read and verified at the same time
KEPT_S = 60.0  # by then the engine has done with the last request for a version that was unloaded


class Prepared:
    """Subjects by name, for versions of the store."""

    def __init__(self, store: Store, hosts: Mapping[str, Host], copies: Copies) -> None:
        self._store = store
        self._hosts = hosts
        self._copies = copies
        self._known: dict[str, Subject] = {}
        self._unused_since: dict[str, float] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._making: dict[str, asyncio.Task[None]] = {}

    def __iter__(self) -> Iterator[str]:
        """Their names."""
        return iter(list(self._known))

    def get(self, client: str, version: str) -> Subject | None:
        """The subject of a version that was prepared."""
        return self._known.get(f"{client}@{version}")

    async def make(self, client: str, version: str) -> Subject:
        """Verifies and copies the version, unless that was done. StoreError where it is not sound, or has no host."""
        name = f"{client}@{version}"
        if name not in self._known:
            making = self._making.get(name)
            if making is None:
                making = self._making[name] = asyncio.create_task(self._make(client, version))
                making.add_done_callback(lambda _: self._making.pop(name, None))
            await asyncio.shield(making)  # whoever asked may go away
        return self._known[name]

    async def give_up(self, in_use: Callable[[str], bool]) -> None:
        """Removes the copies that have not been in use for a while."""
        now = time.monotonic()
        for name in list(self._known):
            if in_use(name):
                self._unused_since.pop(name, None)
            elif now - self._unused_since.setdefault(name, now) > KEPT_S:
                del self._known[name], self._unused_since[name]
                await asyncio.to_thread(self._copies.remove, name)

    def gone(self) -> set[str]:
        """Those that the store has no more."""
        root = self._store.root
        return {name for name in self if not (root / name.replace("@", "/") / "manifest.json").exists()}

    async def _make(self, client: str, version: str) -> None:
        async with self._turns:
            self._known[f"{client}@{version}"] = await self._made(client, version)

    async def _made(self, client: str, version: str) -> Subject:
        manifest = (await asyncio.to_thread(self._store.artefact, client, version)).manifest
        host = self._hosts.get(manifest.family)
        if host is None:
            raise StoreError(
                f"{client}@{version} is refused: this gateway serves no base of family {manifest.family!r}"
            )
        host.require_up()
        artefact, files = await asyncio.to_thread(
            self._store.read, client, version, base_id=host.base_id, max_rank=host.max_rank
        )
        folder = await asyncio.to_thread(self._copies.make, f"{client}@{version}", files)
        return of_artefact(artefact, folder)
