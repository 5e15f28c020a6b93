"""Image features of a frozen encoder, kept by what the image is: in memory, and on disk where a folder is given.

An encoder's result for one image can differ in the last bit with the batch it was computed in. So a group of images is
computed whole whenever one of it is missing: what a caller gets depends on its own list alone, not on what was kept.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from adapters_store.disk.files import FILE_MODE, make_folder
from adapters_store.personal.tensor_cache import TensorCache
from train.data import Example

GROUP = 64
"""Images encoded at a time."""
MIB = 1 << 20
Encode = Callable[[Sequence[Example]], Tensor]


class FeatureCache:
    """Features (D,) float32 by (base id, content of the image); the least recently used go first."""

    def __init__(self, base: str, memory_mib: float, folder: Path | None = None, disk_mib: float = 0.0) -> None:
        self.memory = TensorCache(int(memory_mib * MIB))
        self.disk = None if folder is None else _Disk(folder / f"{base}.sqlite", int(disk_mib * MIB))

    def features(self, examples: Sequence[Example], encode: Encode) -> Tensor:
        """(n, D); ``encode`` returns (m, D) for the m ≤ 64 examples it is given."""
        parts = [self._group(examples[i : i + GROUP], encode) for i in range(0, len(examples), GROUP)]
        return torch.cat(parts)

    def _group(self, examples: Sequence[Example], encode: Encode) -> Tensor:
        keys = [example.digest for example in examples]
        found = [self._get(key) for key in keys]
        present = [feature for feature in found if feature is not None]
        if len(present) == len(keys):
            return torch.stack(present)
        features = encode(examples).cpu()
        made = {key: feature.clone() for key, feature in zip(keys, features, strict=True)}  # no views of the batch
        for key, feature in made.items():
            self.memory.put(key, feature)
        if self.disk is not None:
            self.disk.put(made)
        return features

    def _get(self, key: str) -> Tensor | None:
        found = self.memory.get(key)
        if found is None and self.disk is not None and (found := self.disk.get(key)) is not None:
            self.memory.put(key, found)
        return found


class _Disk:
    """The same in one SQLite file, which several processes may share."""

    def __init__(self, path: Path, limit: int) -> None:
        make_folder(path.parent)
        path.touch(FILE_MODE)  # features of clients' images: their owner's alone, and SQLite's files beside it likewise
        self.path, self.limit = path, limit
        with closing(self._open()) as database, database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("CREATE TABLE IF NOT EXISTS features (key TEXT PRIMARY KEY, value BLOB NOT NULL)")

    def get(self, key: str) -> Tensor | None:
        with closing(self._open()) as database:
            row = database.execute("SELECT value FROM features WHERE key = ?", (key,)).fetchone()
        return None if row is None else torch.from_numpy(np.frombuffer(row[0], dtype=np.float32).copy())

    def put(self, features: dict[str, Tensor]) -> None:
        rows = [(key, feature.numpy().tobytes()) for key, feature in features.items()]
        with closing(self._open()) as database, database:
            database.executemany("INSERT OR REPLACE INTO features VALUES (?, ?)", rows)
            size = database.execute("SELECT SUM(LENGTH(value)) FROM features").fetchone()[0]
            if size > self.limit:  # oldest first: rows are numbered in the order they were written
                excess = -(-(size - self.limit) // len(rows[0][1]))
                database.execute(
                    "DELETE FROM features WHERE rowid IN (SELECT rowid FROM features ORDER BY rowid LIMIT ?)", (excess,)
                )

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)
