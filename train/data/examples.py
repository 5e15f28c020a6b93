"""What clients hold: examples in three splits."""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from adapters_store.pictures.reader import UnfaithfulError, Window, seen

SPLITS: Final = ("train", "val", "test")
UNSEEN: Final = ("style", "task")
"""Kinds of examples of what nobody trains: the client's task in another style; other tasks in the client's style."""


def read_image(path: Path, window: Window | None = None) -> NDArray[np.uint8]:
    """(height, width, 3) RGB of an image file, as serving sees it (adapters_store/pictures/reader.py).

    ValueError with one sentence where it cannot be read.
    """
    try:
        with Image.open(path) as image:
            return np.asarray(seen(image, window))
    except UnfaithfulError as error:
        raise ValueError(f"data.path: {path} {error}") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # Pillow's ways to say: not an image
        raise ValueError(f"data.path: {path} is missing or not an image") from None


@dataclass(frozen=True)
class Example:
    """One image with a question and its answer, or with a class."""

    source: NDArray[np.uint8] | Path
    """The image, (height, width, 3) RGB, or the file it is read from."""
    question: str
    """Empty where the task is `classify`."""
    answer: str
    task: str
    label: int
    """Index into the client's class names; −1 where there are none."""
    uid: str
    """Unique in the federation; no two splits share one."""
    style: str
    window: Window | None = None
    """What of a greyscale file is seen."""

    @property
    def image(self) -> NDArray[np.uint8]:
        """(height, width, 3) RGB, 64 × 64 where embedded; a file is read each time, so that none stays in memory."""
        return read_image(self.source, self.window) if isinstance(self.source, Path) else self.source

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the image's content, in hex: a file's bytes and its window, or an array's shape and bytes."""
        if isinstance(self.source, Path):
            window = b"" if self.window is None else repr(self.window).encode()
            try:
                return hashlib.sha256(self.source.read_bytes() + window).hexdigest()
            except OSError:
                raise ValueError(f"data.path: {self.source} is missing or not an image") from None
        shape = " ".join(str(size) for size in self.source.shape)
        return hashlib.sha256(f"{shape}\n".encode() + self.source.tobytes()).hexdigest()


@dataclass(frozen=True)
class ClientData:
    """All that one client holds."""

    id: str
    train: tuple[Example, ...]
    val: tuple[Example, ...]
    test: tuple[Example, ...]
    class_names: tuple[str, ...]
    """Empty where clients answer questions."""
    note: str
    """What sets this client apart, for people."""
    unseen: Mapping[str, tuple[Example, ...]] = field(default_factory=dict)
    """Examples of what nobody trains, by kind of UNSEEN."""
