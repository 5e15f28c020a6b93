"""``live.json``: which version of a client answers, which one is tried beside it, and what came before."""

from pathlib import Path
from typing import Annotated

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters_store.files import replace_file
from adapters_store.manifest import Hex16, first_reason

LOCK_TIMEOUT_S = 60.0


class StoreError(Exception):
    """What the store refuses, and why; the message is one sentence fit for a person."""


class Live(BaseModel):
    """A client's pointer. ``previous`` is what a rollback goes back through, oldest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Hex16
    canary: Hex16 | None = None
    canary_percent: Annotated[int, Field(ge=0, le=100)] = 0
    previous: list[Hex16] = []


def read_live(root: Path, client: str) -> Live | None:
    """The client's pointer, or None where nothing was activated yet; StoreError where the file is damaged."""
    path = root / client / "live.json"
    try:
        return Live.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        reason = first_reason(error)
        raise StoreError(f"live.json of client {client!r} is damaged ({reason}): activate a version again") from error


def write_live(root: Path, client: str, live: Live) -> None:
    """Replaces the client's pointer atomically; the caller holds the client's lock."""
    replace_file(root, root / client / "live.json", live.model_dump_json(indent=1).encode() + b"\n")


class ClientLock:
    """One writer at a time per client, across processes; the operating system lets go when a writer dies."""

    def __init__(self, root: Path, client: str) -> None:
        folder = root / client
        folder.mkdir(parents=True, exist_ok=True)
        self._client = client
        self._lock = FileLock(folder / ".lock", timeout=LOCK_TIMEOUT_S, is_singleton=False)

    def __enter__(self) -> None:
        try:
            self._lock.acquire()
        except Timeout as error:
            raise StoreError(
                f"client {self._client!r} was locked by another writer for {LOCK_TIMEOUT_S:.0f} s"
            ) from error

    def __exit__(self, *_: object) -> None:
        self._lock.release()
