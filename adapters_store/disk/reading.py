"""The one way that bytes are read out of a store: regular files of a bounded size, reached through no link.

A link, a FIFO, a socket or a device is refused before it is opened, and what was opened is looked at again: whoever
swaps one in at that moment makes no reader wait, and leads none out of the store.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from adapters_store.errors import StoreError
from adapters_store.limits import ENTRIES

FILE, FOLDER = "regular file", "folder"
KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: FOLDER,
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}
OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


class Entry(NamedTuple):
    """What a name in a folder stands for."""

    kind: str  # one of KINDS
    bytes: int


def read_regular(root: Path, name: str, limit: int) -> bytes:
    """The bytes of the file ``root/name``.

    FileNotFoundError where there is none; StoreError where it, or a folder on the way from ``root``, is something
    else, where it has more than ``limit`` bytes, and where it cannot be read.
    """
    with _opened(root, name, FILE) as descriptor:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise StoreError(f"file {name} has {size} bytes: at most {limit} are allowed")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    if len(data) > limit:
        raise StoreError(f"file {name} grew beyond {limit} bytes while it was read")
    return data


def listed(root: Path, name: str = "") -> dict[str, Entry]:
    """What lies in the folder ``root/name``, by name in order; refusals as of ``read_regular``."""
    found = {}
    with _opened(root, name, FOLDER) as descriptor, os.scandir(descriptor) as entries:
        for number, entry in enumerate(entries):
            if number >= ENTRIES:
                raise StoreError(f"folder {name or root} holds more than {ENTRIES} names")
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # gone since it was listed
                continue
            found[entry.name] = Entry(_kind(status), status.st_size)
    return dict(sorted(found.items()))


def require_folder(root: Path, name: str) -> None:
    """Raises as ``listed`` does where ``root/name`` is no folder."""
    with _opened(root, name, FOLDER):
        pass


@contextmanager
def _opened(root: Path, name: str, wanted: str) -> Iterator[int]:
    """A descriptor of ``root/name``; ``root`` itself may be a link."""
    parts = name.split("/") if name else []
    try:
        opened = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        try:
            for number, part in enumerate(parts, 1):
                last = number == len(parts)
                opened.append(_open_in(opened[-1], part, wanted if last else FOLDER, "/".join(parts[:number])))
            yield opened[-1]
        finally:
            for descriptor in opened:
                os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{name or root} cannot be read: {error.strerror}") from error


def _open_in(folder: int, part: str, wanted: str, name: str) -> int:
    _require(os.stat(part, dir_fd=folder, follow_symlinks=False), wanted, name)
    descriptor = os.open(part, OPEN, dir_fd=folder)
    try:
        _require(os.fstat(descriptor), wanted, name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require(status: os.stat_result, wanted: str, name: str) -> None:
    if _kind(status) != wanted:
        raise StoreError(f"{name} is a {_kind(status)} where a {wanted} is needed")


def _kind(status: os.stat_result) -> str:
    return KINDS.get(stat.S_IFMT(status.st_mode), "special file")
