"""Keys: who a caller is, and which clients a key may use.

Only SHA-256 digests are kept. A key is 256 random bits, so its digest cannot be searched for and needs no salt.

A damaged key file opens nothing that was not open before it was damaged. Where single entries are malformed, they open
nothing and the sound ones go on. Where nothing can be read of it (half written, no JSON, a FIFO in its place), what was
known goes on: one bad byte should not shut everybody out, and a key that was taken away by a sound file stays away, for
the file read last decides. A gateway that starts over such a file knows no key. To close everything, delete the file.
"""

import hashlib
import hmac
import json
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from filelock import FileLock
from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError

from adapters_store.disk.bounded_json import parse_json
from adapters_store.disk.files import FILE_MODE, close_to_others, make_folder, replace_file
from adapters_store.disk.reading import read_regular
from adapters_store.errors import StoreError
from adapters_store.limits import KEYS_BYTES
from adapters_store.paths import check_client
from adapters_store.versions.manifest import Sha256
from serve.errors import GatewayError

log = logging.getLogger(__name__)

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


class Entry(BaseModel):
    """What the key file says of one key. Only JSON's true makes an admin: no text, no number."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    clients: list[Annotated[str, AfterValidator(check_client)]]
    admin: bool


ENTRY = TypeAdapter(tuple[Sha256, Entry])  # with the digest it stands under


class Keys:
    """The key file of a store, read anew whenever it changed: keys are given and taken without a restart."""

    def __init__(self, store_root: Path) -> None:
        self._path = store_root / KEY_FILE
        self._stamp: tuple[int, ...] | None = None
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
        """Digest of each key → {"clients": [...], "admin": bool}. ValueError where any of the file is damaged: it is
        not for a program to guess what was meant, and never to write the guess back.
        """
        try:
            sound, damaged = self._read()
        except FileNotFoundError:
            return {}
        except (StoreError, ValueError) as error:
            sound, damaged = {}, [str(error)]
        if damaged:
            raise ValueError(
                f"{self._path} is damaged ({damaged[0]}); it was left as it is: repair it, or delete it, which takes "
                "all keys away"
            )
        return {digest: entry.model_dump() for digest, entry in sound.items()}

    def _read(self) -> tuple[dict[str, Entry], list[str]]:
        """The sound entries, and a sentence for each of the others, which tells no digest and no key.

        FileNotFoundError, StoreError or ValueError where nothing of the file can be read.
        """
        document = parse_json(read_regular(self._path.parent, KEY_FILE, KEYS_BYTES))
        if not isinstance(document, dict):
            raise ValueError("it is no object of keys")
        sound, damaged = {}, []
        for number, item in enumerate(document.items(), 1):
            try:
                digest, entry = ENTRY.validate_python(item)
                sound[digest] = entry
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                field = ".".join(map(str, first["loc"][1:])) or ("what it opens" if first["loc"][0] else "digest")
                damaged.append(f"entry {number}: {field}: {first['msg']}")
        return sound, damaged

    def _reload(self) -> None:
        """One look at the file's status, and at the file where that changed."""
        stamp: tuple[int, ...]
        try:
            status = self._path.lstat()
            stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size, status.st_mode)
        except (FileNotFoundError, NotADirectoryError):
            self._known, self._stamp = {}, None
            return
        except OSError as error:  # the store cannot be entered: reading will say so, once
            stamp = (error.errno or 0,)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            sound, damaged = self._read()
        except FileNotFoundError:  # gone since
            sound, damaged = {}, []
        except (StoreError, ValueError) as error:
            log.error("%s is damaged (%s): the %d keys known before go on", KEY_FILE, error, len(self._known))
            return
        for sentence in damaged:
            log.error("%s: %s; it opens nothing", KEY_FILE, sentence)
        self._known = {digest: Access(frozenset(entry.clients), entry.admin, digest) for digest, entry in sound.items()}

    def _lock(self) -> FileLock:
        make_folder(self._path.parent)
        close_to_others(self._path.parent)
        return FileLock(self._path.with_suffix(".lock"), mode=FILE_MODE)

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        try:
            replace_file(self._path.parent, self._path, json.dumps(entries, indent=1).encode())
        except StoreError as error:
            raise ValueError(str(error)) from error


def digest_of(key: str) -> str:
    """SHA-256 of the key, in hexadecimal: the only form in which keys are kept."""
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
