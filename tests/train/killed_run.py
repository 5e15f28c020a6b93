"""Runs train/fed.py's ``main`` and kills this process with SIGKILL in one phase of round 2: a power cut on demand.

Phase ``pilot`` kills a run of Pilot before the optimiser step of the given number.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapters_store.store import Store
from train import fed
from train.federation import checkpoint, local_backend
from train.methods.contract import Method
from train.methods.fedit import FedIT
from train.methods.pilot import Pilot
from train.methods.promptfl import PromptFL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(call: Callable[..., Any], nth: int) -> Callable[..., Any]:
    """``call``, but its nth invocation is the end of the process."""
    count = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count == nth:
            die()
        return call(*args, **kwargs)

    return wrapped


def half_written(path: Path, data: bytes) -> None:
    """An upload of round 2 is cut off in the middle; every other file is written as usual."""
    if "train-0002" in str(path) and path.parent.name == "up" and path.suffix == ".safetensors":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data[: len(data) // 2])
        die()
    write(path, data)


def before_rename(folder: Path) -> None:
    """The new round is written but not yet committed."""
    sync(folder)
    if folder.name == "partial-0002":
        die()


write, sync = local_backend._write, checkpoint.sync_folder
phase, steps, *arguments = sys.argv[1:]  # steps: how many round 1 has
if phase == "train":
    Method.loss = before(Method.loss, int(steps) + 2)  # type: ignore[method-assign]
elif phase == "pilot":
    Pilot.loss = before(Pilot.loss, int(steps))  # type: ignore[method-assign]
elif phase == "upload":
    local_backend._write = half_written
elif phase == "aggregate":
    for method in (FedIT, PromptFL):
        method.combine = before(method.combine, 2)  # type: ignore[attr-defined]
elif phase == "commit":
    checkpoint.sync_folder = before_rename
elif phase == "publish":
    Store.publish = before(Store.publish, 2)  # type: ignore[method-assign]
sys.exit(fed.main(arguments))
