"""A store's pointers as they are to be believed: each of the family it is named after, or of a store from before."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adapters_store.errors import StoreError
from adapters_store.files import remove
from adapters_store.manifest import FAMILIES, Family
from adapters_store.old_pointer import OLD, by_family
from adapters_store.pointer import POINTERS, Live, parse_live, read_pointer, write_live
from adapters_store.reading import listed
from adapters_store.version_folder import read_artefact

NAMES = frozenset({*POINTERS.values(), OLD})


class Pointers:
    """The pointers under one root, by client and family."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._families: dict[tuple[str, str], Family] = {}  # a version's name is its content's: this never changes

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
                self.check_family(client, family, live.version)
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

    def check_family(self, client: str, family: Family, version: str) -> None:
        """StoreError where a pointer of that family names a version of another. Where its manifest cannot be read,
        whoever reads the version will say so.
        """
        found = family
        with suppress(StoreError):
            found = self._family_of(client, version)
        if found != family:
            raise StoreError(f"version: {version} is of family {found!r}")

    def _old(self, client: str) -> dict[Family, Live]:
        with _named(client, OLD):
            data = read_pointer(self._root, client, OLD)
            return {} if data is None else self.from_old(client, data)

    def _family_of(self, client: str, version: str) -> Family:
        if (client, version) not in self._families:
            self._families[client, version] = read_artefact(self._root, client, version).manifest.family
        return self._families[client, version]


@contextmanager
def _named(client: str, name: str) -> Iterator[None]:
    """What is wrong with the pointer of that name, said of it and with the way out."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{name} of client {client!r} is damaged ({error}): activate a version again") from error
