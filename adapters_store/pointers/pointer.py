"""``live-<family>.json``: which version of a client answers for that family, and which ones did before it.

One file a family, so that whatever becomes of one of them is about that family alone. A store from before that has one
``live.json`` for all of a client's versions; it counts for the families that have no file of their own (see
``old_pointer``), and goes with the next change of any.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters_store.disk.bounded_json import parse_json
from adapters_store.disk.files import FILE_MODE, close_to_others, own_folder, replace_file
from adapters_store.disk.reading import read_regular
from adapters_store.errors import StoreError
from adapters_store.limits import POINTER_BYTES, PREVIOUS
from adapters_store.versions.manifest import FAMILIES, Family, Hex16, first_reason

POINTERS: dict[Family, str] = {family: f"live-{family}.json" for family in FAMILIES}
LOCK_TIMEOUT_S = 60.0


class Live(BaseModel):
    """A client's pointer. ``previous`` is what a rollback goes back through, oldest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Hex16
    previous: Annotated[list[Hex16], Field(max_length=PREVIOUS)] = []


Pointer = TypeVar("Pointer", bound=Live)


def read_pointer(root: Path, client: str, name: str) -> bytes | None:
    """The bytes of the client's pointer of that name, or None where there is none."""
    try:
        return read_regular(root, f"{client}/{name}", POINTER_BYTES)
    except FileNotFoundError:
        return None


def parse_live(data: bytes) -> Live:
    """Raises StoreError where these bytes, from here or from a mirror, are no pointer."""
    return parsed(Live, data)


def parsed(kind: type[Pointer], data: bytes) -> Pointer:
    """What these bytes say, as that kind of pointer; StoreError where they are none."""
    try:
        return kind.model_validate(parse_json(data))
    except ValidationError as error:
        raise StoreError(first_reason(error)) from error
    except ValueError as error:
        raise StoreError(str(error)) from error


def live_json(live: Live) -> bytes:
    """A pointer as it is written, here and on a mirror."""
    return live.model_dump_json(indent=1).encode() + b"\n"


def write_live(root: Path, client: str, family: Family, live: Live) -> None:
    """Replaces the client's pointer of that family atomically; the caller holds the client's lock."""
    replace_file(root, root / client / POINTERS[family], live_json(live))


@contextmanager
def in_words(client: str) -> Iterator[None]:
    """Writes inside it that the system refuses (a full disk, a folder of another user) raise StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"client {client!r} cannot be written: {error}") from error


@contextmanager
def client_lock(root: Path, client: str) -> Iterator[None]:
    """One writer at a time per client, across processes; the operating system lets go when a writer dies."""
    with in_words(client):
        lock = FileLock(own_folder(root, client) / ".lock", LOCK_TIMEOUT_S, FILE_MODE, is_singleton=False)
        close_to_others(root)
        try:
            lock.acquire()
        except Timeout as error:
            raise StoreError(f"client {client!r} was locked by another writer for {LOCK_TIMEOUT_S:.0f} s") from error
        try:
            yield
        finally:
            lock.release()
