"""Ways to damage a store, and what its calls then say: an answer, or one sentence of refusal, and that in time."""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adapters_store.store import Store, StoreError
from tests.adapters_store.artefacts import manifest, prompt_files

PATIENCE_S = 10
BYTES = {
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "forty levels": b'{"a":' * 40 + b"1" + b"}" * 40,
    "long number": b'{"version": ' + b"9" * 5000 + b', "r": 1}',
    "not a number": b'{"version": NaN}',
    "empty": b"",
    "a list": b"[]",
    "no text": b"\xff\xfe\x00{",
    "half": b'{"version": "01',
    "half a character": b'{"version": "\\ud800"}',
}


@contextmanager
def in_time(seconds: int = PATIENCE_S) -> Iterator[None]:
    """Ends what is under way after that time, a read that blocks too."""

    def late(*_: object) -> None:
        raise AssertionError(f"still under way after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's whole path may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.mkdir()


SPECIAL: dict[str, Callable[[Path], None]] = {
    made.__name__: made for made in (fifo, unix_socket, link, link_to_nothing, link_to_itself, folder)
}


def calls(store: Store, client: str, version: str) -> dict[str, Callable[[], object]]:
    """Everything a store does for one client and for all, by name."""
    return {
        "clients": store.clients,
        "versions": lambda: store.versions(client),
        "live": lambda: store.live(client),
        "artefact": lambda: store.artefact(client, version),
        "verify": lambda: store.verify(client, version),
        "families": lambda: store.families(client),
        "publish": lambda: store.publish(manifest(client), prompt_files(9.0), {}, activate=True),
        "rollback": lambda: store.rollback(client),
        "activate": lambda: store.activate(client, version),
        "gc": lambda: store.gc(5),
    }


def sentence(call: Callable[[], object]) -> str | None:
    """What the call refuses with, None where it does not; any other error than a store's own is let out."""
    try:
        with in_time():
            call()
    except StoreError as error:
        return str(error)
    return None


def said(store: Store, client: str, version: str) -> dict[str, str]:
    """What each call refuses with, by its name; one printable line each."""
    found = {name: sentence(call) for name, call in calls(store, client, version).items()}
    refusals = {name: refusal for name, refusal in found.items() if refusal is not None}
    assert all(len(refusal) < 2000 and refusal.isprintable() for refusal in refusals.values())
    return refusals


def state(store: Store, client: str) -> str:
    """What a client has, for comparison."""
    live = store.live(client)
    assert live is not None
    sound = [store.verify(client, version).version for version in store.versions(client)]
    return json.dumps([sound, live.model_dump(mode="json"), client in store.clients()])
