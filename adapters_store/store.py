"""Versioned adapters on a local disk: published once, never changed, a pointer per client and family to what answers.

<root>/<client>/<version>/           manifest.json, report.json and the files of the manifest; immutable
<root>/<client>/live-<family>.json   the pointer, replaced atomically under <root>/<client>/.lock
<root>/.staging/                     what is being written; a crash leaves its litter here, out of every reader's sight

All of it is its owner's alone (folders 0700, files 0600): training, gateway and commands run as one user. A store that
was open to others is closed by the next write and where a gateway opens it; to serve elsewhere or as somebody else,
push to a mirror and pull from it there.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, NoReturn

from adapters_store.disk.files import close_to_others, remove, rename_folder, staged, sweep, sync_folder, write_new
from adapters_store.disk.reading import FILE, FOLDER, Entry, listed
from adapters_store.errors import StoreError
from adapters_store.limits import PREVIOUS
from adapters_store.paths import CLIENT_ID, RESERVED, VERSION_ID, check_client, check_version
from adapters_store.pointers.of_store import NAMES, Pointers, check_family
from adapters_store.pointers.pointer import Live, client_lock, in_words
from adapters_store.versions.folder import MANIFEST, Artefact, published, read_artefact, read_files
from adapters_store.versions.manifest import Family, Manifest
from adapters_store.versions.report import REPORT, after_all, report_json

__all__ = ["Artefact", "Live", "Store", "StoreError"]


class Store:
    """The versions under one root. Reading needs no lock; every write is all or nothing. Errors are StoreError."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.pointers = Pointers(self.root)

    def close_to_others(self) -> None:
        """Makes an existing store its owner's alone, as every write does: for whoever opens it to read for long."""
        close_to_others(self.root)

    def clients(self) -> list[str]:
        """Ids of the clients that have a version or a pointer, sorted; of a damaged folder its calls say more."""
        try:
            names = listed(self.root).items()
        except FileNotFoundError:
            return []
        return [name for name, entry in names if self._is_client(name, entry)]

    def versions(self, client: str) -> list[str]:
        """The client's versions in the order they were published, oldest first; empty for an unknown client."""
        moments = self._published(_client(client))
        return sorted(moments, key=lambda version: (moments[version], version))

    def families(self, client: str) -> list[Family]:
        """Those of which the client has a pointer, be it damaged."""
        return self.pointers.families(_client(client))

    def live(self, client: str, family: Family | None = None) -> Live | None:
        """The client's pointer of that family, or None where nothing was activated yet.

        ``family`` may be left out for a client that has pointers of one family at most.
        """
        family = family or self._only_family(client)
        return None if family is None else self.pointers.read(_client(client), family)

    def artefact(self, client: str, version: str) -> Artefact:
        """The version's manifest and report, parsed and matched with its name, its other files not read."""
        return read_artefact(self.root, _client(client), _version(version))

    def verify(self, client: str, version: str, *, base_id: str | None = None, max_rank: int | None = None) -> Artefact:
        """The version, once every byte of it is found sound and fit for that base and rank; else StoreError."""
        return self.read(client, version, base_id=base_id, max_rank=max_rank)[0]

    def read(
        self, client: str, version: str, *, base_id: str | None = None, max_rank: int | None = None
    ) -> tuple[Artefact, dict[str, bytes]]:
        """The version and the very bytes that were verified, by file name, whatever becomes of its folder later."""
        from adapters_store.versions.verify import (  # numpy, which listing never needs
            check_bytes,
            check_content,
            check_served,
        )

        artefact = self.artefact(client, version)
        try:
            check_served(artefact.manifest, base_id, max_rank)
            files = read_files(self.root, client, version, artefact.manifest)
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
        from adapters_store.templates.sandbox import TemplateError, check_template  # jinja2: listing never needs it
        from adapters_store.versions.verify import completed

        try:
            manifest = completed(manifest, files)
            if manifest.family == "mllm":
                check_template(manifest.prompt_template)
            report_json(report := {**report, "published": after_all([])})
        except (StoreError, TemplateError) as error:
            raise StoreError(f"a version of {manifest.client!r} is refused: {error}") from error
        client, version = manifest.client, manifest.version
        with in_words(client), staged(self.root, client) as staging:
            for name, data in {**files, MANIFEST: manifest.canonical_json()}.items():
                write_new(staging / version / name, data)
            with client_lock(self.root, client):
                self._install(client, staging / version, report)
                if activate:
                    self._activate(client, version)
        return version

    def install(self, client: str, folder: Path) -> None:
        """Takes in a staged folder that is named by its version and holds all of it, its report too (a mirror's)."""
        with client_lock(self.root, _client(client)):
            self._install(client, folder, None)

    def activate(self, client: str, version: str) -> None:
        """Verifies the version and makes it the one that answers for its family; what did so before is kept for a
        rollback.
        """
        with self._locked(client):
            self._activate(client, version)

    def set_canary(self, client: str, version: str | None, percent: int = 0) -> NoReturn:
        """Refuses: no gateway would give the version its share."""
        raise StoreError(
            f"a canary of client {client!r} is refused: canaries are not served yet; "
            "try a version as client@version, or activate it"
        )

    def rollback(self, client: str, family: Family | None = None) -> str:
        """Goes back to what answered before and returns that version.

        ``family`` says for which family; it may be left out for a client that has live versions of one.
        """
        with self._locked(client):
            family = family or self._only_family(client)
            live = None if family is None else self.live(client, family)
            if family is None or live is None:
                kind = "" if family is None else f" of family {family!r}"
                raise StoreError(f"client {client!r} has no live version{kind}: activate one first")
            present = [version for version in live.previous if version in self.versions(client)]
            if not present:
                raise StoreError(
                    f"client {client!r} has nothing to roll back to: no version was live before {live.version}"
                )
            check_family(family, present[-1], self.verify(client, present[-1]).manifest.family)
            self.pointers.write(client, family, Live(version=present[-1], previous=present[:-1]))
            return present[-1]

    def gc(self, keep: int, *, dry_run: bool = False) -> list[str]:
        """Deletes old versions, or none in a dry run, and returns them as ``client@version``; it needs no space on the
        disk.

        Kept for each client: the live versions, the last ``keep`` rollback targets of each, and the newest ``keep``.
        Of a client that is damaged everything is kept, and StoreError says so once all others have been seen to.
        """
        if keep < 0:
            raise StoreError(f"keep is {keep}: allowed is 0 or more")
        if not dry_run:
            sweep(self.root)
        removed, damaged = [], []
        for client in self.clients():
            try:
                removed += [f"{client}@{version}" for version in self._gc_client(client, keep, dry_run)]
            except StoreError as error:
                damaged.append(str(error))
        if damaged:
            raise StoreError(f"{len(removed)} versions were removed; of {len(damaged)} clients none: {damaged[0]}")
        return removed

    def _gc_client(self, client: str, keep: int, dry_run: bool) -> list[str]:
        with client_lock(self.root, client):
            versions = self.versions(client)
            pointers = {family: self.live(client, family) for family in self.families(client)}
            kept = set(versions[-keep:]) if keep else set()
            trimmed = {
                family: live.model_copy(update={"previous": live.previous[-keep:] if keep else []})
                for family, live in pointers.items()
                if live is not None
            }
            for live in trimmed.values():
                kept |= {live.version, *live.previous}
            removed = [version for version in versions if version not in kept]
            if dry_run:
                return removed
            for version in removed:
                remove(self.root, self.root / client / version)
            for family, live in trimmed.items():
                if live != pointers[family]:
                    with suppress(OSError):  # a full disk: the names left in it lead nowhere, which a rollback skips
                        self.pointers.write(client, family, live)
            return removed

    def _locked(self, client: str) -> AbstractContextManager[None]:
        """A lock for a client that exists, so that a misspelt id does not make a folder."""
        try:
            listed(self.root, _client(client))
        except FileNotFoundError as error:
            raise StoreError(f"client {client!r} is not in the store {self.root}") from error
        return client_lock(self.root, client)

    def _only_family(self, client: str) -> Family | None:
        families = self.families(client)
        if len(families) > 1:
            named = " and ".join(map(repr, families))
            raise StoreError(f"client {client!r} has live versions of the families {named}: say which (--family)")
        return families[0] if families else None

    def _activate(self, client: str, version: str) -> None:
        family = self.verify(client, version).manifest.family
        try:
            live = self.live(client, family)
        except StoreError:  # a damaged pointer is repaired by pointing anew; its history is lost
            live = None
        previous = [v for v in (*live.previous, live.version) if v != version] if live else []
        self.pointers.write(client, family, Live(version=version, previous=previous[-PREVIOUS:]))

    def _install(self, client: str, folder: Path, report: dict[str, Any] | None) -> None:
        """Renames a fully staged version into place, unless a sound one of that name is there. The lock is held."""
        target = self.root / client / folder.name
        if os.path.lexists(target):
            try:
                self.verify(client, folder.name)
                return
            except StoreError:  # damaged on disk: the name promises this content, so it is put back
                remove(self.root, target)
        if report is not None:
            report["published"] = after_all(list(self._published(client).values()))
            write_new(folder / REPORT, report_json(report))
        sync_folder(self.root)
        rename_folder(folder, target)

    def _is_client(self, name: str, entry: Entry) -> bool:
        """Whether this name in the root is a client's, be its folder damaged or not."""
        if not CLIENT_ID.fullmatch(name) or name in RESERVED or entry.kind == FILE:
            return False
        try:
            inside = listed(self.root, name) if entry.kind == FOLDER else {}
        except (StoreError, FileNotFoundError):
            return True
        return entry.kind != FOLDER or any(name in NAMES or VERSION_ID.fullmatch(name) for name in inside)

    def _published(self, client: str) -> dict[str, str]:
        """Version → when it was published."""
        try:
            names = listed(self.root, client)
        except FileNotFoundError:
            return {}
        return {name: published(self.root, client, name) for name in names if VERSION_ID.fullmatch(name)}


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
