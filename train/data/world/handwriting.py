"""scikit-learn's 1,797 handwritten digits as 64 × 64 pictures: real data, far from rendered digits.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI 1998 (8 × 8, 17 grey levels).
"""

import functools
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from train.data.world.vocabulary import IMAGE_SIZE

TRAIN_SHARE: Final = 0.6
"""Share of the digits from which clients draw training and validation; the rest is only ever tested on."""


@dataclass(frozen=True)
class Preprocessing:
    """How an 8 × 8 digit becomes a picture; the defaults were chosen on the training share alone."""

    edge: int = 44
    """Height to which the original is enlarged, pixels."""
    width: float = 0.85
    """Width as a share of that height."""
    level: float = 0.5
    """Grey level taken for the edge of a stroke."""
    sharpness: float = 6.0
    """Steepness of that edge."""
    paper: float = 0.9
    """Grey of the background."""
    ink: tuple[float, float, float] = (0.25, 0.95, 0.95)
    """Colour of the strokes: cyan. The CLIP knows digits in colours, and reads white or grey ones worse."""


class Handwriting(NamedTuple):
    images: NDArray[np.uint8]
    """(1797, 64, 64, 3)"""
    labels: NDArray[np.int64]
    """(1797,) digit 0–9."""
    is_train: NDArray[np.bool_]
    """(1797,) fixed for ever, independent of any seed."""


def to_pictures(grey: torch.Tensor, how: Preprocessing) -> torch.Tensor:
    """(N, 3, 64, 64) pictures in 0–1 of (N, 8, 8) ink in 0–1: enlarged, strokes sharpened, amid plain paper."""
    height, width = how.edge, round(how.edge * how.width)
    large = F.interpolate(grey[:, None], (height, width), mode="bicubic", align_corners=False)
    left, top = (IMAGE_SIZE - width) // 2, (IMAGE_SIZE - height) // 2
    padded = F.pad(large, (left, IMAGE_SIZE - width - left, top, IMAGE_SIZE - height - top))
    cover = torch.sigmoid(2 * how.sharpness * (padded - how.level))
    return torch.lerp(torch.full((3, 1, 1), how.paper), torch.tensor(how.ink)[:, None, None], cover)


@functools.cache
def load_handwriting() -> Handwriting:
    """All digits, with the fixed division into training and test share."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    pictures = to_pictures(torch.from_numpy(raw.images).float() / 16, Preprocessing())
    images = (pictures * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    order = np.random.default_rng(1998).permutation(len(raw.target))
    is_train = np.zeros(len(order), dtype=bool)
    is_train[order[: int(TRAIN_SHARE * len(order))]] = True
    return Handwriting(images, raw.target.astype(np.int64), is_train)
