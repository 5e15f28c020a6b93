"""A copy of the store behind any fsspec URL (``s3://…``, ``gs://…``, ``file://…``): one writer, any number of readers.

Files go first, then the manifest that makes them a version, then the pointer, so that what it names is always there.
A reader trusts nothing it fetches: nothing larger than a store holds is fetched at all, what does not hash to its
manifest is refused, and the local pointer stays. Who may read a mirror is for its own file system or bucket to say.
"""

import json
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass, field

from adapters_store.bounded_json import parse_json
from adapters_store.errors import StoreError
from adapters_store.files import make_folder, staged, write_new
from adapters_store.limits import MANIFEST_BYTES, POINTER_BYTES, REPORT_BYTES, WRITER_BYTES
from adapters_store.paths import CLIENT_ID, RESERVED, VERSION_ID
from adapters_store.pointer import POINTER, Live, client_lock, in_words, parse_live, write_live
from adapters_store.reading import read_regular
from adapters_store.remote import Mirror
from adapters_store.report import REPORT, check_published, parse_report
from adapters_store.store import Store
from adapters_store.verify import check_bytes, check_content
from adapters_store.version_folder import MANIFEST, check_sizes, parse_manifest

WRITER = "writer.json"  # on the mirror: the id of the one store that may push to it
OWN_ID = ".mirror_id"  # in the store: its id
ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Moved:
    """What a push or a pull did: versions copied, clients whose pointer was set, and a sentence per refusal."""

    copied: list[str] = field(default_factory=list)
    pointed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def push(store: Store, url: str) -> Moved:
    """Copies to the mirror what it lacks, then sets its pointers to this store's. A damaged version is not copied."""
    mirror, moved = Mirror(url), Moved()
    _claim(store, mirror)
    for client in store.clients():
        try:
            _push_client(store, mirror, client, moved)
        except StoreError as error:
            moved.refused.append(str(error))
    return moved


def _push_client(store: Store, mirror: Mirror, client: str, moved: Moved) -> None:
    live = store.live(client)  # before the versions: a later one may not be there yet
    for version in store.versions(client):
        try:
            if mirror.size(f"{client}/{version}/{MANIFEST}") is None:
                _push_version(store, mirror, client, version)
                moved.copied.append(f"{client}@{version}")
        except StoreError as error:
            moved.refused.append(str(error))
    if live is not None and mirror.size(f"{client}/{live.version}/{MANIFEST}") is not None:
        mirror.write(f"{client}/{POINTER}", live.model_dump_json(indent=1).encode() + b"\n")
        moved.pointed.append(client)


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
            moved.refused.append(f"the pointer of {client} at {url} is refused: {error}")
    return moved


def _pull_client(mirror: Mirror, store: Store, client: str, moved: Moved) -> None:
    pointer = _pointer(mirror, client)  # before the versions: what it names was written before it
    present = set(store.versions(client))
    for version in mirror.names(client):
        if VERSION_ID.fullmatch(version) and version not in present:
            try:
                if _pull_version(mirror, store, client, version):
                    moved.copied.append(f"{client}@{version}")
            except StoreError as error:
                moved.refused.append(f"{client}@{version} of {mirror.url} is refused: {error}")
    if isinstance(pointer, StoreError):
        raise pointer
    if pointer is not None and _take_pointer(store, client, pointer):
        moved.pointed.append(client)


def _pointer(mirror: Mirror, client: str) -> Live | StoreError | None:
    """The mirror's pointer; a refusal of it is kept for later, since the versions can be had all the same."""
    try:
        data = mirror.read(f"{client}/{POINTER}", POINTER_BYTES)
        return None if data is None else parse_live(data)
    except StoreError as error:
        return StoreError(f"{POINTER} is damaged ({error})")


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


def _take_pointer(store: Store, client: str, live: Live) -> bool:
    """True where the pointer changed. Rollback targets and a canary that are not here are left out of it."""
    with client_lock(store.root, client):
        present = set(store.versions(client))
        store.verify(client, live.version)
        canary = live.canary if live.canary in present else None
        live = Live(
            version=live.version,
            canary=canary,
            canary_percent=live.canary_percent if canary else 0,
            previous=[version for version in live.previous if version in present],
        )
        with suppress(StoreError):  # a damaged pointer is repaired by pointing anew
            if store.live(client) == live:
                return False
        write_live(store.root, client, live)
    return True
