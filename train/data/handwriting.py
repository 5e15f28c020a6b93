"""scikit-learn's 1,797 handwritten digits as 64 × 64 pictures: real data, far from rendered digits.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI 1998 (8 × 8, 17 grey levels).
"""

import functools
from typing import Final, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

TRAIN_SHARE: Final = 0.6
"""Share of the digits from which clients draw training and validation; the rest is only ever tested on."""
EDGE: Final = 44
"""Edge to which the 8 × 8 original is enlarged, pixels. Chosen on the training share, as the three below."""
INK_LEVEL: Final = 0.40
"""Grey level taken for the edge of a stroke."""
SHARPNESS: Final = 6.0
"""Steepness of that edge."""
PAPER: Final = (0.20, 0.90)
"""Grey of the background and of the ink."""


class Handwriting(NamedTuple):
    images: NDArray[np.uint8]
    """(1797, 64, 64, 3)"""
    labels: NDArray[np.int64]
    """(1797,) digit 0–9."""
    is_train: NDArray[np.bool_]
    """(1797,) fixed for ever, independent of any seed."""


def to_pictures(
    grey: torch.Tensor,
    edge: int = EDGE,
    level: float = INK_LEVEL,
    sharpness: float = SHARPNESS,
    paper: tuple[float, float] = PAPER,
) -> torch.Tensor:
    """(N, 3, 64, 64) pictures in 0–1 of (N, 8, 8) ink in 0–1: enlarged, strokes sharpened, amid plain paper."""
    large = F.interpolate(grey[:, None], (edge, edge), mode="bicubic", align_corners=False)
    before = (64 - edge) // 2
    ink = torch.sigmoid(sharpness * (F.pad(large, (before, 64 - edge - before) * 2) - level) * 2)
    return (paper[0] + (paper[1] - paper[0]) * ink).expand(-1, 3, -1, -1)


@functools.cache
def load_handwriting() -> Handwriting:
    """All digits, with the fixed division into training and test share."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    pictures = to_pictures(torch.from_numpy(raw.images).float() / 16)
    images = (pictures * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    order = np.random.default_rng(1998).permutation(len(raw.target))
    is_train = np.zeros(len(order), dtype=bool)
    is_train[order[: int(TRAIN_SHARE * len(order))]] = True
    return Handwriting(images, raw.target.astype(np.int64), is_train)
