"""An image as the frozen encoders want it: one definition, so that training and serving see the same numbers."""

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from adapters_store.pictures.transform import ImageTransform

RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
Box = tuple[float, float, float, float]


def to_pixels(image: Image.Image | NDArray[np.uint8], transform: ImageTransform) -> Tensor:
    """The image as float32 (3, size, size): of the encoder's size (``squared``), scaled to [0, 1], normalised."""
    picture = squared(image if isinstance(image, Image.Image) else Image.fromarray(image), transform)
    pixels = torch.from_numpy(np.asarray(picture, dtype=np.float32) / 255.0).permute(2, 0, 1)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (transform.mean, transform.std))
    return ((pixels - mean) / std).contiguous()


def squared(picture: Image.Image, transform: ImageTransform) -> Image.Image:
    """The picture as RGB and of the transform's size: all of it that ``to_pixels`` needs, to give the same numbers."""
    picture = picture.convert("RGB")
    side = transform.size
    if picture.size == (side, side):
        return picture
    resampling = RESAMPLING[transform.interpolation]
    if transform.resize == "squash":
        return picture.resize((side, side), resampling)
    return picture.resize((side, side), resampling, box=_centre(picture.width, picture.height, transform))


def _centre(width: int, height: int, transform: ImageTransform) -> Box:
    """What a resize of the shorter side and a crop of the centre leave of a picture, in its own pixels.

    Resizing that box alone gives the same pixels, and takes memory for them only, however thin the picture is.
    """
    side, shorter = transform.size, min(width, height)
    resized = [int(side * length / shorter) for length in (width, height)]  # the longer one is cut to whole pixels
    edges = [round(left / 2) if transform.resize == "shortest" else left // 2 for left in (w - side for w in resized)]
    (left, top), (x, y) = edges, (length / new for length, new in zip((width, height), resized, strict=True))
    return left * x, top * y, (left + side) * x, (top + side) * y
