"""A copy of the store behind any fsspec URL (``s3://…``, ``gs://…``, ``file://…``): one writer, any number of readers.

Files go first, then the manifest that makes them a version, then the pointers, so that what they name is always there.
A reader trusts nothing it fetches: nothing larger than a store holds is fetched at all, what does not hash to its
manifest is refused, and the local pointer stays. Who may read a mirror is for its own file system or bucket to say.
"""

import json
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from adapters_store.disk.bounded_json import parse_json
from adapters_store.disk.files import make_folder, staged, write_new
from adapters_store.disk.reading import read_regular
from adapters_store.errors import StoreError
from adapters_store.limits import MANIFEST_BYTES, POINTER_BYTES, REPORT_BYTES, WRITER_BYTES
from adapters_store.mirror.remote import Mirror
from adapters_store.paths import CLIENT_ID, RESERVED, VERSION_ID
from adapters_store.pointers.of_store import check_family
from adapters_store.pointers.old import OLD
from adapters_store.pointers.pointer import POINTERS, Live, client_lock, in_words, live_json, parse_live
from adapters_store.store import Store
from adapters_store.versions.folder import MANIFEST, check_sizes, parse_manifest
from adapters_store.versions.manifest import FAMILIES, Family
from adapters_store.versions.report import REPORT, check_published, parse_report
from adapters_store.versions.verify import check_bytes, check_content

WRITER = "writer.json"  # on the mirror: the id of the one store that may push to it
OWN_ID = ".mirror_id"  # in the store: its id
ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Moved:
    """What a push or a pull did: versions copied, clients of whom a pointer was set, and a sentence per refusal."""

    copied: list[str] = field(default_factory=list)
    pointed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def point(self, client: str) -> None:
        """Notes that a pointer of the client was set."""
        if client not in self.pointed:
            self.pointed.append(client)

    def refuse(self, sentence: str) -> None:
        """Notes a refusal; an old pointer is refused for both families in the same words."""
        if sentence not in self.refused:
            self.refused.append(sentence)


def push(store: Store, url: str) -> Moved:
    """Copies to the mirror what it lacks, then sets its pointers to this store's. A damaged version is not copied."""
    mirror, moved = Mirror(url), Moved()
    _claim(store, mirror)
    for client in store.clients():
        try:
            _push_client(store, mirror, client, moved)
        except StoreError as error:
            moved.refuse(str(error))
    return moved


def _push_client(store: Store, mirror: Mirror, client: str, moved: Moved) -> None:
    pointers: dict[Family, Live] = {}  # read before the versions: a later one may not be there yet
    for family in FAMILIES:
        try:
            if (live := store.live(client, family)) is not None:
                pointers[family] = live
        except StoreError as error:
            moved.refuse(str(error))
    for version in store.versions(client):
        try:
            if mirror.size(f"{client}/{version}/{MANIFEST}") is None:
                _push_version(store, mirror, client, version)
                moved.copied.append(f"{client}@{version}")
        except StoreError as error:
            moved.refuse(str(error))
    for family, live in pointers.items():
        if mirror.size(f"{client}/{live.version}/{MANIFEST}") is not None:
            mirror.write(f"{client}/{POINTERS[family]}", live_json(live))
            moved.point(client)


def pull(url: str, store: Store) -> Moved:
    """Copies from the mirror what the store lacks, verified, then takes over the mirror's pointers.

    What is refused of one client leaves the others alone. Raises StoreError where nothing at all lies at the URL.
    """
    mirror, moved = Mirror(url), Moved()
    names = mirror.names()
    if not names:
        raise StoreError(f"mirror {url!r} holds nothing: a store is pushed there first")
    for client in names:
        if not CLIENT_ID.fullmatch(client) or client in RESERVED:
            continue
        try:
            _pull_client(mirror, store, client, moved)
        except StoreError as error:
            moved.refuse(f"client {client} at {url} is refused: {error}")
    return moved


def _pull_client(mirror: Mirror, store: Store, client: str, moved: Moved) -> None:
    found = {name: _fetched(mirror, f"{client}/{name}") for name in (*POINTERS.values(), OLD)}
    present = set(store.versions(client))  # after the pointers: what they name was written before them
    for version in mirror.names(client):
        if VERSION_ID.fullmatch(version) and version not in present:
            try:
                if _pull_version(mirror, store, client, version):
                    moved.copied.append(f"{client}@{version}")
            except StoreError as error:
                moved.refuse(f"{client}@{version} of {mirror.url} is refused: {error}")
    for family in FAMILIES:
        try:
            live = _pointer(store, client, family, found)
            if live is not None and _take_pointer(store, client, family, live):
                moved.point(client)
        except StoreError as error:
            moved.refuse(f"the pointer of {client} at {mirror.url} is refused: {error}")


def _fetched(mirror: Mirror, path: str) -> bytes | StoreError | None:
    """A refusal is kept for later, since the versions can be had all the same."""
    try:
        return mirror.read(path, POINTER_BYTES)
    except StoreError as error:
        return error


def _pointer(store: Store, client: str, family: Family, found: Mapping[str, bytes | StoreError | None]) -> Live | None:
    """What the mirror's pointers say of that family."""
    name = OLD if found[POINTERS[family]] is None else POINTERS[family]
    data = found[name]
    try:
        if isinstance(data, StoreError):
            raise data
        if data is None:
            return None
        return store.pointers.from_old(client, data).get(family) if name == OLD else parse_live(data)
    except StoreError as error:
        raise StoreError(f"{name} is damaged ({error})") from error


def _claim(store: Store, mirror: Mirror) -> None:
    """Two stores pushing to one mirror would take turns undoing each other's pointers."""
    own, found = _own_id(store), mirror.read(WRITER, WRITER_BYTES)
    if found is None:
        mirror.write(WRITER, json.dumps({"store": own}).encode())
        return
    try:
        writer = parse_json(found)
    except ValueError:
        writer = None
    if not isinstance(writer, dict) or not ID.fullmatch(str(writer.get("store"))):
        raise StoreError(f"mirror {mirror.url} has a damaged {WRITER}: delete it to let this store take over")
    if writer["store"] != own:
        raise StoreError(f"mirror {mirror.url} has another writer: delete its {WRITER} to let this store take over")


def _own_id(store: Store) -> str:
    try:
        with suppress(FileExistsError):
            write_new(make_folder(store.root) / OWN_ID, uuid.uuid4().hex.encode())
        own = read_regular(store.root, OWN_ID, WRITER_BYTES).decode(errors="replace")
    except OSError as error:
        raise StoreError(f"the store {store.root} has no id for its mirror: {error}") from error
    if not ID.fullmatch(own):
        raise StoreError(f"{OWN_ID} of the store {store.root} is damaged: delete it, and the mirror's {WRITER}")
    return own


def _push_version(store: Store, mirror: Mirror, client: str, version: str) -> None:
    artefact, files = store.read(client, version)
    report = json.dumps(artefact.report, indent=1).encode() + b"\n"
    for name, data in {**files, REPORT: report, MANIFEST: artefact.manifest.canonical_json()}.items():
        mirror.write(f"{client}/{version}/{name}", data)


def _pull_version(mirror: Mirror, store: Store, client: str, version: str) -> bool:
    """False where the version is still being pushed, so that its manifest is not there yet."""
    raw = mirror.read(f"{client}/{version}/{MANIFEST}", MANIFEST_BYTES)
    if raw is None:
        return False
    manifest = parse_manifest(raw)
    if manifest.client != client or manifest.version != version:
        raise StoreError(f"{MANIFEST} is that of {manifest.client}@{manifest.version}")
    report = mirror.read(f"{client}/{version}/{REPORT}", REPORT_BYTES)
    if report is None:
        raise StoreError(f"{REPORT} is missing")
    check_published(parse_report(report))
    paths = {name: f"{client}/{version}/{name}" for name in manifest.files}
    sizes = {name: mirror.size(path) for name, path in paths.items()}
    check_sizes(manifest, {name: size for name, size in sizes.items() if size is not None})
    found = {name: mirror.read(path, manifest.files[name].bytes) for name, path in paths.items()}
    files = {name: data for name, data in found.items() if data is not None}
    check_bytes(manifest, files)
    check_content(manifest, files)
    with in_words(client), staged(store.root, client) as staging:
        for name, data in {**files, REPORT: report, MANIFEST: manifest.canonical_json()}.items():
            write_new(staging / version / name, data)
        store.install(client, staging / version)
    return True


def _take_pointer(store: Store, client: str, family: Family, live: Live) -> bool:
    """True where the pointer changed. Rollback targets that are not here are left out of it."""
    with client_lock(store.root, client):
        present = set(store.versions(client))
        check_family(family, live.version, store.verify(client, live.version).manifest.family)
        live = Live(version=live.version, previous=[version for version in live.previous if version in present])
        with suppress(StoreError):  # a damaged pointer is repaired by pointing anew
            if store.live(client, family) == live:
                return False
        store.pointers.write(client, family, live)
    return True
