"""What clients hold: examples in three splits."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

SPLITS: Final = ("train", "val", "test")


@dataclass(frozen=True)
class Example:
    """One image with a question and its answer, or with a class."""

    image: NDArray[np.uint8]
    """(height, width, 3) RGB; 64 × 64 where embedded."""
    question: str
    """Empty where the task is `classify`."""
    answer: str
    task: str
    label: int
    """Index into the client's class names; −1 where there are none."""
    uid: str
    """Unique in the federation; no two splits share one."""
    style: str


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
