"""Writes that a crash cannot halve: made aside on the same file system, synced, and renamed into place."""

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STAGING = ".staging"  # no client id starts with a dot, so no reader ever looks in here
ABANDONED_AFTER_S = 3600.0  # a staged folder nobody wrote to for this long belongs to a writer that died


def write_synced(path: Path, data: bytes) -> None:
    """Writes a new file and returns once its bytes are on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Returns once the folder's entries (names made or renamed in it) are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def staged(root: Path, label: str) -> Iterator[Path]:
    """A fresh folder under ``root``'s staging area; whatever is still in it afterwards is removed."""
    folder = root / STAGING / f"{label}-{uuid.uuid4().hex}"
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rename_folder(source: Path, target: Path) -> None:
    """Moves a fully written folder to its final name, which must not exist, and syncs both parents."""
    for folder in sorted({source, *(p.parent for p in source.rglob("*"))}):
        sync_folder(folder)
    source.rename(target)
    sync_folder(target.parent)


def replace_file(root: Path, target: Path, data: bytes) -> None:
    """Gives ``target`` new content at once: a reader sees all of the old or all of the new."""
    with staged(root, "file") as folder:
        write_synced(folder / target.name, data)
        os.replace(folder / target.name, target)
        sync_folder(target.parent)


def remove_folder(root: Path, target: Path) -> None:
    """Takes a folder out of sight by one rename, then deletes it."""
    with staged(root, "removed") as folder:
        target.rename(folder / target.name)
        sync_folder(target.parent)


def sweep(root: Path) -> None:
    """Deletes what writers that died left in the staging area."""
    staging = root / STAGING
    oldest_kept = time.time() - ABANDONED_AFTER_S
    for folder in staging.iterdir() if staging.is_dir() else ():
        with suppress(FileNotFoundError):  # its writer is alive after all, and just finished
            if max(p.lstat().st_mtime for p in (folder, *folder.rglob("*"))) < oldest_kept:
                shutil.rmtree(folder, ignore_errors=True)
