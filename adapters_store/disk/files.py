"""Writes that a crash cannot halve: made aside on the same file system, synced, and renamed into place.

Everything is made for its owner alone, folders with mode 0700 and files with 0600, whatever the umask says.
"""

import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adapters_store.disk.reading import listed, require_folder

STAGING = ".staging"  # no client id starts with a dot, so no reader ever looks in here
ABANDONED_AFTER_S = 3600.0  # a staged folder nobody wrote to for this long belongs to a writer that died
FOLDER_MODE, FILE_MODE, OTHERS = 0o700, 0o600, 0o077


def make_folder(path: Path) -> Path:
    """The folder, made with those above it where they are missing."""
    if not path.is_dir():
        if path.parent != path:
            make_folder(path.parent)
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    return path


def own_folder(root: Path, name: str) -> Path:
    """The folder ``root/name``, made where it is missing; StoreError where something else, a link too, is there."""
    path = make_folder(root) / name
    with suppress(FileExistsError):
        path.mkdir(mode=FOLDER_MODE)
    require_folder(root, name)
    return path


def write_new(path: Path, data: bytes) -> None:
    """Writes a file that is not there yet, and the folders above it."""
    make_folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
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
    folder = own_folder(root, STAGING) / f"{label}-{uuid.uuid4().hex}"
    folder.mkdir(mode=FOLDER_MODE)
    try:
        yield folder
    finally:
        _delete(folder)


def rename_folder(source: Path, target: Path) -> None:
    """Moves a fully written folder to its final name, which must not exist, and syncs both parents."""
    for folder in sorted({source, *(p.parent for p in source.rglob("*"))}):
        sync_folder(folder)
    source.rename(target)
    sync_folder(target.parent)


def replace_file(root: Path, target: Path, data: bytes) -> None:
    """Gives ``target`` new content at once: a reader sees all of the old or all of the new."""
    with staged(root, "file") as folder:
        write_new(folder / target.name, data)
        os.replace(folder / target.name, target)
        sync_folder(target.parent)


def remove(root: Path, target: Path) -> None:
    """Takes a folder, or whatever bears its name, out of sight by one rename, then deletes it.

    Writes no file and makes no folder where anything was ever staged, so that a full disk can be freed by it.
    """
    hidden = own_folder(root, STAGING) / f"removed-{target.name}-{uuid.uuid4().hex}"
    target.rename(hidden)
    sync_folder(target.parent)
    _delete(hidden)


def sweep(root: Path) -> None:
    """Deletes what writers that died left in the staging area."""
    oldest_kept = time.time() - ABANDONED_AFTER_S
    for name in listed(own_folder(root, STAGING)):
        with suppress(FileNotFoundError):  # its writer is alive after all, and just finished
            left = root / STAGING / name
            if max(path.lstat().st_mtime for path in _within(left)) < oldest_kept:
                _delete(left)


def close_to_others(root: Path) -> None:
    """Takes from all but its owner what they may do in a store that they may enter.

    Stores made before this was so, and one that somebody opened: first the root, which is enough, then what is in it.
    Nothing where another user owns the store: then it is for that user to close.
    """
    if not root.exists() or root.stat().st_mode & OTHERS == 0:
        return
    for path in _within(root.resolve()):
        with suppress(FileNotFoundError, PermissionError):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & OTHERS:
                path.chmod(stat.S_IMODE(mode) & ~OTHERS)


def _within(path: Path) -> Iterator[Path]:
    """The path and everything below it, however deep; links are not followed."""
    left = [path]
    while left:
        yield (path := left.pop())
        with suppress(FileNotFoundError, PermissionError):
            if stat.S_ISDIR(path.lstat().st_mode):
                left.extend(path.iterdir())


def _delete(path: Path) -> None:
    """Deletes a folder or a file; what cannot be deleted is left for a later sweep."""
    with suppress(OSError, RecursionError):  # nobody but a vandal nests a thousand folders
        shutil.rmtree(path) if stat.S_ISDIR(path.lstat().st_mode) else path.unlink()
