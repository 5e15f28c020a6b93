"""Versioned adapters on a local disk: published once, never changed, one pointer per client to the one that answers.

<root>/<client>/<version>/   manifest.json, report.json and the files of the manifest; immutable
<root>/<client>/live.json    the pointer, replaced atomically under <root>/<client>/.lock
<root>/.staging/             what is being written; a crash leaves its litter here, out of every reader's sight
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from adapters_store.files import remove_folder, rename_folder, staged, sweep, sync_folder, write_synced
from adapters_store.manifest import Manifest, first_reason
from adapters_store.paths import CLIENT_ID, RESERVED, VERSION_ID, check_client, check_version
from adapters_store.pointer import ClientLock, Live, StoreError, read_live, write_live
from adapters_store.version_folder import after_all, published, read_files

__all__ = ["Artefact", "Live", "Store", "StoreError"]


@dataclass(frozen=True)
class Artefact:
    """A version as it lies on disk: its folder, its manifest, and the report of the run that made it."""

    client: str
    version: str
    path: Path
    manifest: Manifest
    report: dict[str, Any]


class Store:
    """The versions under one root. Reading needs no lock; every write is all or nothing. Errors are StoreError."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def clients(self) -> list[str]:
        """Ids of the clients that have a version or a pointer, sorted."""
        folders = [p for p in self.root.iterdir() if p.is_dir()] if self.root.is_dir() else []
        names = [p.name for p in folders if CLIENT_ID.fullmatch(p.name) and p.name not in RESERVED]
        return sorted(name for name in names if self._folders(name) or (self.root / name / "live.json").exists())

    def versions(self, client: str) -> list[str]:
        """The client's versions in the order they were published, oldest first; empty for an unknown client."""
        return [p.name for p in sorted(self._folders(_client(client)), key=lambda p: (published(p), p.name))]

    def live(self, client: str) -> Live | None:
        """The client's pointer, or None where nothing was activated yet."""
        return read_live(self.root, _client(client))

    def artefact(self, client: str, version: str) -> Artefact:
        """The version's manifest and report, parsed and matched with its name, its other files not read."""
        folder = self.root / _client(client) / _version(version)
        name = f"{client}@{version}"
        try:
            manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
            report = json.loads((folder / "report.json").read_bytes())
        except FileNotFoundError as error:
            what = f"{Path(error.filename).name} is missing" if folder.is_dir() else "there is no such version"
            raise StoreError(f"{name}: {what}") from error
        except ValidationError as error:
            raise StoreError(f"{name}: manifest.json is damaged ({first_reason(error)})") from error
        except ValueError as error:
            raise StoreError(f"{name}: report.json is not JSON") from error
        if manifest.client != client or manifest.version != version:
            raise StoreError(f"{name}: manifest.json is that of {manifest.client}@{manifest.version}")
        return Artefact(client, version, folder, manifest, report)

    def verify(self, client: str, version: str, *, base_id: str | None = None, max_rank: int | None = None) -> Artefact:
        """The version, once every byte of it is found sound and fit for that base and rank; else StoreError."""
        return self.read(client, version, base_id=base_id, max_rank=max_rank)[0]

    def read(
        self, client: str, version: str, *, base_id: str | None = None, max_rank: int | None = None
    ) -> tuple[Artefact, dict[str, bytes]]:
        """What ``verify`` gives, and the bytes of the version's files that it verified."""
        from adapters_store.verify import check_bytes, check_content, check_fit  # numpy, which listing never needs

        artefact = self.artefact(client, version)
        try:
            check_fit(artefact.manifest, base_id, max_rank)
            files = read_files(artefact.path)
            check_bytes(artefact.manifest, files)
            check_content(artefact.manifest, files)
        except (StoreError, OSError) as error:
            raise StoreError(f"{client}@{version} is refused: {error}") from error
        return artefact, files

    def publish(
        self, manifest: Manifest, files: Mapping[str, bytes], report: Mapping[str, Any], *, activate: bool
    ) -> str:
        """Writes a version and returns its name; equal content is one version, and nothing of it is rewritten.

        ``manifest.files`` is filled in here; ``report`` gets a field ``published`` (ISO 8601), which orders versions.
        """
        from adapters_store.template_sandbox import check_template  # jinja2, which listing never needs
        from adapters_store.verify import completed

        try:
            manifest = completed(manifest, files)
            if manifest.family == "mllm":
                check_template(manifest.prompt_template)
            json.dumps(report := dict(report), allow_nan=False)
        except StoreError as error:
            raise StoreError(f"a version of {manifest.client!r} is refused: {error}") from error
        except (TypeError, ValueError) as error:
            raise StoreError(f"a version of {manifest.client!r} is refused: the report is no JSON ({error})") from error
        client, version = manifest.client, manifest.version
        with staged(self.root, client) as staging:
            for name, data in {**files, "manifest.json": manifest.canonical_json()}.items():
                write_synced(staging / version / name, data)
            with ClientLock(self.root, client):
                self._install(client, staging / version, report)
                if activate:
                    self._activate(client, version)
        return version

    def install(self, client: str, folder: Path) -> None:
        """Takes in a staged folder that is named by its version and holds all of it, its report too (a mirror's)."""
        with ClientLock(self.root, _client(client)):
            self._install(client, folder, None)

    def activate(self, client: str, version: str) -> None:
        """Verifies the version and makes it the one that answers; what answered before is kept for a rollback."""
        with self._locked(client):
            self._activate(client, version)

    def set_canary(self, client: str, version: str | None, percent: int = 0) -> None:
        """Tries the version beside the live one for that percentage of conversations; None ends the trial."""
        with self._locked(client):
            live = self._live_or_refuse(client)
            if not 0 <= percent <= 100:
                raise StoreError(f"canary percent is {percent}: allowed is 0 to 100")
            if version == live.version:
                raise StoreError(f"{client}@{version} is live already: a canary is another version")
            if version is not None:
                self.verify(client, version)
            canary = {"canary": version, "canary_percent": percent if version else 0}
            write_live(self.root, client, live.model_copy(update=canary))

    def rollback(self, client: str) -> str:
        """Goes back to what answered before and returns that version; a running canary is ended."""
        with self._locked(client):
            live = self._live_or_refuse(client)
            present = [version for version in live.previous if version in self.versions(client)]
            if not present:
                raise StoreError(
                    f"client {client!r} has nothing to roll back to: no version was live before {live.version}"
                )
            self.verify(client, present[-1])
            write_live(self.root, client, Live(version=present[-1], previous=present[:-1]))
            return present[-1]

    def gc(self, keep: int) -> list[str]:
        """Deletes old versions and returns them as ``client@version``.

        Kept for each client: the live version, the canary, the last ``keep`` rollback targets, and the newest ``keep``.
        """
        if keep < 0:
            raise StoreError(f"keep is {keep}: allowed is 0 or more")
        removed = [f"{client}@{version}" for client in self.clients() for version in self._gc_client(client, keep)]
        sweep(self.root)
        return removed

    def _gc_client(self, client: str, keep: int) -> list[str]:
        with ClientLock(self.root, client):
            versions, live = self.versions(client), self.live(client)
            kept = set(versions[-keep:]) if keep else set()
            if live is not None:
                targets = live.previous[-keep:] if keep else []
                kept |= {live.version, live.canary or live.version, *targets}
                if targets != live.previous:
                    write_live(self.root, client, live.model_copy(update={"previous": targets}))
            removed = [version for version in versions if version not in kept]
            for version in removed:
                remove_folder(self.root, self.root / client / version)
            return removed

    def _locked(self, client: str) -> ClientLock:
        """A lock for a client that exists, so that a misspelt id does not make a folder."""
        if not (self.root / _client(client)).is_dir():
            raise StoreError(f"client {client!r} is not in the store {self.root}")
        return ClientLock(self.root, client)

    def _live_or_refuse(self, client: str) -> Live:
        live = self.live(client)
        if live is None:
            raise StoreError(f"client {client!r} has no live version: activate one first")
        return live

    def _activate(self, client: str, version: str) -> None:
        self.verify(client, version)
        try:
            live = self.live(client)
        except StoreError:  # a damaged pointer is repaired by pointing anew; its history is lost
            live = None
        if live is not None and live.version == version:
            return
        previous = [*(v for v in live.previous if v != version), live.version] if live else []
        canary = live.canary if live and live.canary != version else None
        percent = live.canary_percent if live and canary else 0
        write_live(self.root, client, Live(version=version, canary=canary, canary_percent=percent, previous=previous))

    def _install(self, client: str, folder: Path, report: dict[str, Any] | None) -> None:
        """Renames a fully staged version into place, unless a sound one of that name is there. The lock is held."""
        target = self.root / client / folder.name
        if target.exists():
            try:
                self.verify(client, folder.name)
                return
            except StoreError:  # damaged on disk: the name promises this content, so it is put back
                remove_folder(self.root, target)
        if report is not None:
            report["published"] = after_all(self._folders(client))
            write_synced(folder / "report.json", json.dumps(report, indent=1, allow_nan=False).encode() + b"\n")
        sync_folder(self.root)
        rename_folder(folder, target)

    def _folders(self, client: str) -> list[Path]:
        folder = self.root / client
        names = folder.iterdir() if folder.is_dir() else ()
        return [p for p in names if VERSION_ID.fullmatch(p.name) and p.is_dir()]


def _client(client: str) -> str:
    try:
        return check_client(client)
    except ValueError as error:
        raise StoreError(str(error)) from error


def _version(version: str) -> str:
    try:
        return check_version(version)
    except ValueError as error:
        raise StoreError(str(error)) from error
