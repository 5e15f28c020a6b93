"""A writer that is killed (SIGKILL) just before its n-th touch of the file system, for every n until it survives.

python -m tests.adapters_store.killed_writer ROOT ACTION: prints one JSON line per n, of what a reader then sees.
python -m tests.adapters_store.killed_writer ROOT endless: publishes and activates until it is killed from outside.
"""

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapters_store.store import Store
from tests.adapters_store.artefacts import manifest, prompt_files

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
TOUCHES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}


def publish(store: Store, value: float) -> str:
    return store.publish(manifest(), prompt_files(value), {"value": value}, activate=True)


ACTIONS: dict[str, Callable[[Store], object]] = {
    "publish": lambda store: publish(store, 3.0),
    "rollback": lambda store: store.rollback("amy"),
    "gc": lambda store: store.gc(0),
}


def killed_at(touch: int, action: Callable[[], object]) -> bool:
    """Runs the action in a fork that dies at that touch; whether it died rather than finished."""
    child = os.fork()
    if child == 0:
        count = itertools.count(1)

        def hook(event: str, about: tuple[Any, ...]) -> None:
            reads = event == "open" and not about[2] & WRITING  # changes nothing, so dying before it is dying after it
            if event in TOUCHES and not reads and next(count) == touch:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        action()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def seen(store: Store) -> dict[str, object]:
    """What a reader finds: every version it is shown must be sound, and so must the live one."""
    versions, live = store.versions("amy"), store.live("amy")
    assert live is not None
    for version in {*versions, live.version}:
        store.verify("amy", version)
    return {"versions": versions, "live": live.version, "previous": live.previous}


def main(root: Path, action: str) -> None:
    if action == "endless":
        for number in itertools.count():
            publish(Store(root), float(number))
            print(number, flush=True)
    for touch in itertools.count(1):
        store = Store(root / str(touch))
        for value in (1.0, 2.0):
            publish(store, value)
        killed = killed_at(touch, lambda store=store: ACTIONS[action](store))
        print(json.dumps({"killed": killed} | seen(store) | {"again": publish(store, 3.0)}), flush=True)
        if not killed:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
