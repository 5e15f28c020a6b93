"""A run folder is one run's at a time: its main process holds a lock in it for all of its processes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from adapters_store.disk.files import FILE_MODE, make_folder
from train.errors import RunError

LOCK = ".lock"  # holds the id of the process that has it; the operating system lets go when that dies


@contextmanager
def run_lock(folder: Path, resume: bool, accelerator: Accelerator) -> Iterator[None]:
    """The folder is this run's until the end. RunError, in every process, where it is another's or cannot be written.

    A new folder in which nothing came to be is removed again.
    """
    lock, refusal = None, [""]
    if accelerator.is_main_process:
        try:
            lock = _acquire(folder, resume)
        except RunError as error:
            refusal = [str(error)]
    broadcast_object_list(refusal)
    if refusal[0]:
        raise RunError(refusal[0])
    try:
        yield
    finally:
        if lock is not None:
            _release(folder, lock)


def _acquire(folder: Path, resume: bool) -> int:
    """The descriptor that holds the lock."""
    option = "--resume" if resume else "--out"
    try:
        make_folder(folder)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except (FileExistsError, NotADirectoryError):
        raise RunError(f"{option}: {folder} is, or is in, a file; name a folder") from None
    except OSError as error:
        raise RunError(f"{option}: {folder} cannot be written ({error.strerror})") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode() or "just started"
        os.close(lock)
        raise RunError(
            f"{option}: {folder} is being written by another run (process {holder}); wait for it to end"
        ) from None
    if os.fstat(lock).st_nlink == 0:  # its holder removed it with the folder, in between
        os.close(lock)
        return _acquire(folder, resume)
    if not resume and (folder / "config.json").exists():
        os.close(lock)
        raise RunError(f"--out: {folder} already holds a run; continue it with --resume {folder}, or name another")
    os.truncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def _release(folder: Path, lock: int) -> None:
    if [path.name for path in folder.iterdir()] == [LOCK]:
        (folder / LOCK).unlink()
        with suppress(OSError):  # somebody put something there
            folder.rmdir()
    os.close(lock)
