"""The far side of a mirror, on any of fsspec's file systems: bytes in, bytes of a bounded number out."""

from collections.abc import Iterator
from contextlib import contextmanager

from fsspec.core import url_to_fs

from adapters_store.errors import StoreError, shown
from adapters_store.limits import ENTRIES


class Mirror:
    """What lies under a URL, by paths relative to it. Whatever its file system answers, errors are StoreError."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._fs, root = url_to_fs(url)
            self._root = root.rstrip("/")
            self._fs.invalidate_cache()
        except Exception as error:  # every file system has errors of its own, and some look at the network at once
            raise StoreError(f"mirror {url!r} cannot be opened: {' '.join(str(error).split())}") from error

    def names(self, path: str = "") -> list[str]:
        """What lies directly under the path, sorted; empty where nothing does."""
        with self._in_words(path):
            try:
                found = self._fs.ls(f"{self._root}/{path}".rstrip("/"), detail=False)
            except FileNotFoundError:
                return []
            if len(found) > ENTRIES:
                raise StoreError(f"folder {path or self.url} holds {len(found)} names: at most {ENTRIES} are allowed")
            return sorted({str(name).rstrip("/").rpartition("/")[2] for name in found})

    def size(self, path: str) -> int | None:
        """Bytes of the object, or None where there is none."""
        with self._in_words(path):
            try:
                about = self._fs.info(f"{self._root}/{path}")
            except FileNotFoundError:
                return None
            if about["type"] != "file":
                raise StoreError(f"{path} is no file")
            return int(about["size"])

    def read(self, path: str, limit: int) -> bytes | None:
        """The object's bytes, or None where there is none; StoreError where they are more than ``limit``."""
        size = self.size(path)
        if size is None:
            return None
        if size > limit:
            raise StoreError(f"file {path} has {size} bytes: at most {limit} are allowed")
        with self._in_words(path), self._fs.open(f"{self._root}/{path}", "rb") as file:
            data = bytes(file.read(limit + 1))
        if len(data) > limit:
            raise StoreError(f"file {path} has more than {limit} bytes")
        return data

    def write(self, path: str, data: bytes) -> None:
        """Writes one object, making its folders where the file system has folders."""
        target = f"{self._root}/{path}"
        with self._in_words(path):
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(target, data)

    @contextmanager
    def _in_words(self, path: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # every file system has errors of its own
            raise StoreError(f"mirror {self.url} fails at {path or 'its root'}: {shown(error)}") from error
