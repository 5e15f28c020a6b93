"""An image as the frozen encoders want it: one definition, so that training and serving see the same numbers."""

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from adapters_store.manifest import ImageTransform

RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def to_pixels(image: Image.Image | NDArray[np.uint8], transform: ImageTransform) -> Tensor:
    """The image as float32 (3, size, size): resized to a square if it is another size, scaled to [0, 1], normalised."""
    picture = squared(image if isinstance(image, Image.Image) else Image.fromarray(image), transform)
    pixels = torch.from_numpy(np.asarray(picture, dtype=np.float32) / 255.0).permute(2, 0, 1)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (transform.mean, transform.std))
    return ((pixels - mean) / std).contiguous()


def squared(picture: Image.Image, transform: ImageTransform) -> Image.Image:
    """The picture as RGB and of the transform's size: all of it that ``to_pixels`` needs, to give the same numbers."""
    picture = picture.convert("RGB")
    if picture.size != (transform.size, transform.size):
        picture = picture.resize((transform.size, transform.size), RESAMPLING[transform.interpolation])
    return picture
