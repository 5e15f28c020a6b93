"""A store's pointers as they are to be believed: each of the family it is named after, or of a store from before."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adapters_store.disk.files import remove
from adapters_store.disk.reading import listed
from adapters_store.errors import StoreError
from adapters_store.pointers.old import OLD, by_family
from adapters_store.pointers.pointer import POINTERS, Live, parse_live, read_pointer, write_live
from adapters_store.versions.folder import read_artefact
from adapters_store.versions.manifest import FAMILIES, Family

NAMES = frozenset({*POINTERS.values(), OLD})
RETRY_S = 60.0  # a manifest that could not be read may be large and slow to refuse, and a gateway asks all the time


class Pointers:
    """The pointers under one root, by client and family."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._families: dict[tuple[str, str], Family] = {}  # a version's name is its content's: this never changes
        self._unreadable: dict[tuple[str, str], tuple[float, str]] = {}  # until when, and why

    def families(self, client: str) -> list[Family]:
        """Those of which the client has a pointer, damaged or not; StoreError where an old pointer does not tell."""
        try:
            names = listed(self._root, client)
        except FileNotFoundError:
            return []
        old = self._old(client)
        return [family for family in FAMILIES if POINTERS[family] in names or family in old]

    def read(self, client: str, family: Family) -> Live | None:
        """The client's pointer, or None where nothing was activated yet; StoreError where the file is damaged."""
        with _named(client, POINTERS[family]):
            data = read_pointer(self._root, client, POINTERS[family])
            if data is not None:
                live = parse_live(data)
                found = family  # where it cannot be read: whoever reads the version will say so
                with suppress(StoreError):
                    found = self._family_of(client, live.version)
                check_family(family, live.version, found)
                return live
        return self._old(client).get(family)

    def write(self, client: str, family: Family, live: Live) -> None:
        """Replaces the client's pointer of that family atomically; the caller holds the client's lock.

        What an old pointer says of other families is written first, so that it is there at every moment.
        """
        old = {}
        with suppress(StoreError):  # a damaged one is repaired by pointing anew
            old = self._old(client)
        for other, kept in old.items():
            if other != family and not os.path.lexists(self._root / client / POINTERS[other]):
                write_live(self._root, client, other, kept)
        write_live(self._root, client, family, live)
        if os.path.lexists(self._root / client / OLD):
            remove(self._root, self._root / client / OLD)

    def from_old(self, client: str, data: bytes) -> dict[Family, Live]:
        """What an old pointer of these bytes, from here or from a mirror, says of each family."""
        return by_family(client, data, lambda version: self._family_of(client, version))

    def _old(self, client: str) -> dict[Family, Live]:
        with _named(client, OLD):
            data = read_pointer(self._root, client, OLD)
            return {} if data is None else self.from_old(client, data)

    def _family_of(self, client: str, version: str) -> Family:
        name, now = (client, version), time.monotonic()
        if name in self._families:
            return self._families[name]
        self._unreadable = {name: noted for name, noted in self._unreadable.items() if noted[0] > now}
        if name in self._unreadable:
            raise StoreError(self._unreadable[name][1])
        try:
            found = self._families[name] = read_artefact(self._root, client, version).manifest.family
        except StoreError as error:
            self._unreadable[name] = now + RETRY_S, str(error)
            raise
        return found


def check_family(family: Family, version: str, found: Family) -> None:
    """StoreError where a pointer of that family names a version that was found to be of another."""
    if found != family:
        raise StoreError(f"version: {version} is of family {found!r}")


@contextmanager
def _named(client: str, name: str) -> Iterator[None]:
    """What is wrong with the pointer of that name, said of it and with the way out."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{name} of client {client!r} is damaged ({error}): activate a version again") from error
