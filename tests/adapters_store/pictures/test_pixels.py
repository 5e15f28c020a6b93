"""Pixels: resampled as the transform says, and normalised."""

from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image

from adapters_store.pictures.pixels import to_pixels
from adapters_store.pictures.transform import ImageTransform

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize(("interpolation", "resampling"), [("bicubic", 3), ("bilinear", 2)])
def test_a_picture_of_another_size_is_resampled_as_the_transform_says(
    interpolation: Literal["bicubic", "bilinear"], resampling: int
) -> None:
    """By Pillow's numbers of its filters."""
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (96, 96, 3), dtype=np.uint8))
    transform = ImageTransform(size=32, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), interpolation=interpolation)
    small = np.asarray(picture.resize((32, 32), resampling), dtype=np.float64) / 255
    expected = (small - np.array([0.5, 0.4, 0.3])) / np.array([0.2, 0.3, 0.4])
    torch.testing.assert_close(to_pixels(picture, transform), torch.from_numpy(expected).float().permute(2, 0, 1))
