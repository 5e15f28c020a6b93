"""A copy of the store behind any fsspec URL (``s3://…``, ``gs://…``, ``file://…``): one writer, any number of readers.

Files go first, then the manifest that makes them a version, then the pointer, so that what it names is always there.
A reader trusts nothing it fetches: what does not hash to its manifest is refused, and the local pointer stays.
"""

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from pydantic import ValidationError

from adapters_store.files import staged, write_synced
from adapters_store.manifest import Manifest, first_reason
from adapters_store.paths import CLIENT_ID, RESERVED, VERSION_ID
from adapters_store.pointer import ClientLock, Live, StoreError, read_live, write_live
from adapters_store.store import Store
from adapters_store.verify import check_bytes, check_content

WRITER = "writer.json"  # on the mirror: the id of the one store that may push to it


@dataclass(frozen=True)
class Moved:
    """What a push or a pull did: versions copied, clients whose pointer was set, and a sentence per refusal."""

    copied: list[str] = field(default_factory=list)
    pointed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class Mirror:
    """The remote side. Paths are relative to the URL; bytes in, bytes out."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._fs, root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise StoreError(f"mirror {url!r} cannot be opened: {error}") from error
        self._root = root.rstrip("/")
        self._fs.invalidate_cache()

    def names(self, path: str = "") -> list[str]:
        """What lies directly under the path, sorted; empty where nothing does."""
        try:
            found = self._fs.ls(f"{self._root}/{path}".rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        return sorted({str(name).rstrip("/").rpartition("/")[2] for name in found})

    def read(self, path: str) -> bytes | None:
        """The object's bytes, or None where there is none."""
        try:
            return bytes(self._fs.cat_file(f"{self._root}/{path}"))
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        """Writes one object, making its folders where the file system has folders."""
        target = f"{self._root}/{path}"
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(target, data)


def push(store: Store, url: str) -> Moved:
    """Copies to the mirror what it lacks, then sets its pointers to this store's. A damaged version is not copied."""
    mirror, moved = Mirror(url), Moved()
    _claim(store, mirror)
    for client in store.clients():
        live = store.live(client)  # before the versions: a later one may not be there yet
        for version in store.versions(client):
            if mirror.read(f"{client}/{version}/manifest.json") is not None:
                continue
            try:
                _push_version(store, mirror, client, version)
                moved.copied.append(f"{client}@{version}")
            except StoreError as error:
                moved.refused.append(str(error))
        if live is not None and mirror.read(f"{client}/{live.version}/manifest.json") is not None:
            mirror.write(f"{client}/live.json", live.model_dump_json(indent=1).encode() + b"\n")
            moved.pointed.append(client)
    return moved


def pull(url: str, store: Store) -> Moved:
    """Copies from the mirror what the store lacks, verified, then takes over the mirror's pointers."""
    mirror, moved = Mirror(url), Moved()
    for client in mirror.names():
        if not CLIENT_ID.fullmatch(client) or client in RESERVED:
            continue
        pointer = mirror.read(f"{client}/live.json")  # before the versions: what it names was written before it
        present = set(store.versions(client))
        for version in mirror.names(client):
            if VERSION_ID.fullmatch(version) and version not in present:
                try:
                    if _pull_version(mirror, store, client, version):
                        moved.copied.append(f"{client}@{version}")
                except StoreError as error:
                    moved.refused.append(f"{client}@{version} of {url} is refused: {error}")
        try:
            if pointer is not None and _take_pointer(store, client, pointer):
                moved.pointed.append(client)
        except StoreError as error:
            moved.refused.append(f"the pointer of {client} at {url} is refused: {error}")
    return moved


def _claim(store: Store, mirror: Mirror) -> None:
    """Two stores pushing to one mirror would take turns undoing each other's pointers."""
    own = store.root / ".mirror_id"
    if not own.exists():
        store.root.mkdir(parents=True, exist_ok=True)
        own.write_text(uuid.uuid4().hex)
    writer = mirror.read(WRITER)
    if writer is None:
        mirror.write(WRITER, json.dumps({"store": own.read_text()}).encode())
    elif json.loads(writer).get("store") != own.read_text():
        raise StoreError(f"mirror {mirror.url} has another writer: delete its {WRITER} to let this store take over")


def _push_version(store: Store, mirror: Mirror, client: str, version: str) -> None:
    folder = store.verify(client, version).path
    manifest = store.artefact(client, version).manifest
    for name in (*manifest.files, "report.json", "manifest.json"):
        mirror.write(f"{client}/{version}/{name}", (folder / name).read_bytes())


def _pull_version(mirror: Mirror, store: Store, client: str, version: str) -> bool:
    """False where the version is still being pushed, so that its manifest is not there yet."""
    raw = mirror.read(f"{client}/{version}/manifest.json")
    if raw is None:
        return False
    try:
        manifest = Manifest.model_validate_json(raw)
    except ValidationError as error:
        raise StoreError(f"manifest.json is damaged ({first_reason(error)})") from error
    if manifest.client != client or manifest.version != version:
        raise StoreError(f"manifest.json is that of {manifest.client}@{manifest.version}")
    found = {name: mirror.read(f"{client}/{version}/{name}") for name in manifest.files}
    files = {name: data for name, data in found.items() if data is not None}
    check_bytes(manifest, files)
    check_content(manifest, files)
    report = mirror.read(f"{client}/{version}/report.json")
    if report is None or not isinstance(_json(report), dict):
        raise StoreError("report.json is missing or not a JSON object")
    with staged(store.root, client) as staging:
        for name, data in {**files, "report.json": report, "manifest.json": manifest.canonical_json()}.items():
            write_synced(staging / version / name, data)
        store.install(client, staging / version)
    return True


def _take_pointer(store: Store, client: str, raw: bytes) -> bool:
    """True where the pointer changed. Rollback targets and a canary that are not here are left out of it."""
    try:
        live = Live.model_validate_json(raw)
    except ValidationError as error:
        raise StoreError(f"live.json is damaged ({first_reason(error)})") from error
    Path(store.root / client).mkdir(parents=True, exist_ok=True)
    with ClientLock(store.root, client):
        present = set(store.versions(client))
        store.verify(client, live.version)
        canary = live.canary if live.canary in present else None
        live = Live(
            version=live.version,
            canary=canary,
            canary_percent=live.canary_percent if canary else 0,
            previous=[version for version in live.previous if version in present],
        )
        if read_live(store.root, client) == live:
            return False
        write_live(store.root, client, live)
    return True


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None
