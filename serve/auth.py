"""Keys: who a caller is, and which clients a key may use.

Only SHA-256 digests are kept. A key is 256 random bits, so its digest cannot be searched for and needs no salt.
"""

import hashlib
import hmac
import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from adapters_store.paths import check_client
from serve.errors import GatewayError

KEY_FILE = "keys.json"
SHARED = frozenset({"global", "base"})  # models that every key may use


@dataclass(frozen=True)
class Access:
    """What one key opens. An admin key opens every client and the administration."""

    clients: frozenset[str]
    admin: bool = False
    owner: str = ""  # the key's digest: caches are kept apart by it, in shared models too

    def allows(self, client: str) -> bool:
        """Whether the key may use that client's model."""
        return self.admin or client in SHARED or client in self.clients


class Keys:
    """The key file of a store, read anew whenever it changed: keys are given and taken without a restart."""

    def __init__(self, store_root: Path) -> None:
        self._path = store_root / KEY_FILE
        self._stamp: tuple[int, int] | None = None
        self._known: dict[str, Access] = {}

    def authenticate(self, authorization: str | None) -> Access:
        """The access of an ``Authorization: Bearer`` header; 401 where there is none or the key is unknown."""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise GatewayError(401, "no API key was given: send the header 'Authorization: Bearer <key>'")
        return self.access(key.strip())

    def access(self, key: str) -> Access:
        """The access of a key; 401 where it is unknown. Every digest is compared, each in constant time."""
        self._reload()
        digest = digest_of(key)
        found = None
        for known, access in self._known.items():
            if hmac.compare_digest(known, digest):
                found = access
        if found is None:
            raise GatewayError(401, "the API key is not known here: ask whoever runs this gateway for one")
        return found

    def add(self, clients: list[str], admin: bool = False) -> str:
        """Makes a key for those clients, and returns it; it cannot be shown again. ValueError for an impossible id."""
        if not clients and not admin:
            raise ValueError("a key needs at least one client, or --admin")
        key = "ft-" + secrets.token_urlsafe(32)
        entry = {"clients": sorted({check_client(client) for client in clients}), "admin": admin}
        with self._lock():
            self._write(self.entries() | {digest_of(key): entry})
        return key

    def remove(self, prefix: str) -> str:
        """Takes away the key whose digest starts with ``prefix``, and returns it; ValueError unless one does."""
        with self._lock():
            entries = self.entries()
            matching = [digest for digest in entries if prefix and digest.startswith(prefix)]
            if len(matching) != 1:
                raise ValueError(f"{len(matching)} keys have a digest that starts with {prefix!r}: give more of one")
            self._write({digest: entry for digest, entry in entries.items() if digest != matching[0]})
        return matching[0]

    def entries(self) -> dict[str, dict[str, Any]]:
        """Digest of each key → {"clients": [...], "admin": bool}."""
        if not self._path.exists():
            return {}
        entries: dict[str, dict[str, Any]] = json.loads(self._path.read_text())
        return entries

    def _reload(self) -> None:
        stat = self._path.stat() if self._path.exists() else None
        stamp = (stat.st_mtime_ns, stat.st_ino) if stat else None
        if stamp != self._stamp:
            self._known = {
                digest: Access(frozenset(entry["clients"]), bool(entry["admin"]), digest)
                for digest, entry in self.entries().items()
            }
            self._stamp = stamp

    def _lock(self) -> FileLock:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self._path.with_suffix(".lock"))

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=".keys-")  # made with mode 0600
        with os.fdopen(handle, "w") as file:
            json.dump(entries, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, self._path)


def digest_of(key: str) -> str:
    """SHA-256 of the key, in hexadecimal: the only form in which keys are kept."""
    return hashlib.sha256(key.encode()).hexdigest()
