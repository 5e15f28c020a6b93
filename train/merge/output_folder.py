"""A folder that appears complete or not at all."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def output_folder(out: Path) -> Iterator[Path]:
    """A hidden folder beside ``out`` to write to, renamed to it at the end, removed where there is an error.

    What a killed process left there is removed by the next one for the same ``out``. Raises ValueError, in one
    sentence, where ``out`` exists, the folder that it is to be in does not, or another process is writing it.
    """
    if out.exists():
        raise ValueError(f"--out: {out} exists; name a folder that does not")
    if not out.parent.is_dir():
        raise ValueError(f"--out: {out.parent}, in which {out.name} is to be, is no folder")
    partial = out.parent / f".{out.name}.partial"
    partial.mkdir(exist_ok=True)
    lock = os.open(partial, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"--out: {out} is being written by another process") from None
        try:
            _empty(partial)
            yield partial
            partial.rename(out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    finally:
        os.close(lock)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
