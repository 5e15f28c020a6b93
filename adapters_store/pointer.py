"""``live.json``: which version of a client answers, which one is tried beside it, and what came before."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters_store.bounded_json import parse_json
from adapters_store.errors import StoreError
from adapters_store.files import FILE_MODE, close_to_others, own_folder, replace_file
from adapters_store.limits import POINTER_BYTES, PREVIOUS
from adapters_store.manifest import Hex16, first_reason
from adapters_store.reading import read_regular

POINTER = "live.json"
LOCK_TIMEOUT_S = 60.0


class Live(BaseModel):
    """A client's pointer. ``previous`` is what a rollback goes back through, oldest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Hex16
    canary: Hex16 | None = None
    canary_percent: Annotated[int, Field(ge=0, le=100)] = 0
    previous: Annotated[list[Hex16], Field(max_length=PREVIOUS)] = []


def read_live(root: Path, client: str) -> Live | None:
    """The client's pointer, or None where nothing was activated yet; StoreError where the file is damaged."""
    try:
        return parse_live(read_regular(root, f"{client}/{POINTER}", POINTER_BYTES))
    except FileNotFoundError:
        return None
    except StoreError as error:
        raise StoreError(f"{POINTER} of client {client!r} is damaged ({error}): activate a version again") from error


def parse_live(data: bytes) -> Live:
    """Raises StoreError where these bytes, from here or from a mirror, are no pointer."""
    try:
        return Live.model_validate(parse_json(data))
    except ValidationError as error:
        raise StoreError(first_reason(error)) from error
    except ValueError as error:
        raise StoreError(str(error)) from error


def write_live(root: Path, client: str, live: Live) -> None:
    """Replaces the client's pointer atomically; the caller holds the client's lock."""
    replace_file(root, root / client / POINTER, live.model_dump_json(indent=1).encode() + b"\n")


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
