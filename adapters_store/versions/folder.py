"""What is read off a version's folder: its manifest and report, its files, and when it was published."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from adapters_store.disk.bounded_json import parse_json
from adapters_store.disk.reading import FILE, FOLDER, Entry, listed, read_regular
from adapters_store.errors import StoreError
from adapters_store.limits import MANIFEST_BYTES, REPORT_BYTES
from adapters_store.versions.manifest import Manifest, first_reason
from adapters_store.versions.report import REPORT, check_published, parse_report

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Artefact:
    """A version as it lies on disk: its folder, its manifest, and the report of the run that made it."""

    client: str
    version: str
    path: Path
    manifest: Manifest
    report: dict[str, Any]


def read_artefact(root: Path, client: str, version: str) -> Artefact:
    """The version's manifest and report, parsed and matched with its name; StoreError names what is wrong with them."""
    name = f"{client}@{version}"
    try:
        manifest = parse_manifest(_read(root, client, version, MANIFEST, MANIFEST_BYTES))
        report = parse_report(_read(root, client, version, REPORT, REPORT_BYTES))
    except StoreError as error:
        raise StoreError(f"{name}: {error}") from error
    if manifest.client != client or manifest.version != version:
        raise StoreError(f"{name}: {MANIFEST} is that of {manifest.client}@{manifest.version}")
    return Artefact(client, version, root / client / version, manifest, report)


def parse_manifest(data: bytes) -> Manifest:
    """Raises StoreError where these bytes, from here or from a mirror, are no manifest."""
    try:
        return Manifest.model_validate(parse_json(data))
    except ValidationError as error:
        raise StoreError(f"{MANIFEST} is damaged ({first_reason(error)})") from error
    except ValueError as error:
        raise StoreError(f"{MANIFEST} is damaged ({error})") from error


def read_files(root: Path, client: str, version: str, manifest: Manifest) -> dict[str, bytes]:
    """The files of the manifest, by name. StoreError where they are not exactly those, of exactly those sizes: nothing
    is read before that is known.
    """
    folder = f"{client}/{version}"
    found = _files(root, folder, {name.partition("/")[0] for name in manifest.files if "/" in name})
    check_sizes(manifest, {name: entry.bytes for name, entry in found.items()})
    return {name: read_regular(root, f"{folder}/{name}", entry.bytes) for name, entry in manifest.files.items()}


def check_sizes(manifest: Manifest, sizes: dict[str, int]) -> None:
    """Raises StoreError where a file is missing, unlisted, or of another size than the manifest says."""
    for name in sorted(manifest.files.keys() | sizes.keys()):
        if name not in sizes:
            raise StoreError(f"file {name} is missing")
        if name not in manifest.files:
            raise StoreError(f"file {name} is not in the manifest")
        expected = manifest.files[name].bytes
        if sizes[name] != expected:
            raise StoreError(f"file {name} has {sizes[name]} bytes where the manifest says {expected}")


def published(root: Path, client: str, version: str) -> str:
    """When the version was published, as text that sorts; empty, before all others, where its report does not say."""
    try:
        return check_published(parse_report(read_regular(root, f"{client}/{version}/{REPORT}", REPORT_BYTES)))
    except (FileNotFoundError, StoreError):
        return ""


def _read(root: Path, client: str, version: str, name: str, limit: int) -> bytes:
    try:
        return read_regular(root, f"{client}/{version}/{name}", limit)
    except FileNotFoundError as error:
        try:
            listed(root, f"{client}/{version}")
        except FileNotFoundError:
            raise StoreError("there is no such version") from error
        raise StoreError(f"{name} is missing") from error


def _files(root: Path, folder: str, inner: set[str]) -> dict[str, Entry]:
    """Every file of the version but its manifest and report; of folders only ``inner``'s are looked into."""
    found: dict[str, Entry] = {}
    for name, entry in listed(root, folder).items():
        if entry.kind == FOLDER and name in inner:
            found |= {f"{name}/{file}": entry for file, entry in listed(root, f"{folder}/{name}").items()}
        elif name not in (MANIFEST, REPORT):
            found[name] = entry
    for name, entry in found.items():
        if entry.kind == FOLDER:
            raise StoreError(f"folder {name} is not in the manifest")
        if entry.kind != FILE:
            raise StoreError(f"file {name} is a {entry.kind}")
    return found
