"""Random crops and mirror images, as CLIP's few-shot methods train with them (CoOp, Zhou et al. 2022)."""

from collections.abc import Sequence

import torch
from PIL import Image
from torchvision.transforms import v2

from train.data import Example

SCALE = (0.08, 1.0)
"""Share of the image's area that a crop may have."""


def crop_flip(examples: Sequence[Example], size: int, random: torch.Generator) -> list[Image.Image]:
    """Each image cropped at random, resized to ``size`` squared (bicubic) and mirrored with probability ½."""
    crop = v2.RandomResizedCrop(size, SCALE, interpolation=v2.InterpolationMode.BICUBIC)
    change = v2.Compose([crop, v2.RandomHorizontalFlip()])
    with torch.random.fork_rng(devices=[]):  # torchvision draws from the global generator
        torch.manual_seed(int(torch.randint(2**62, (), generator=random)))
        return [change(Image.fromarray(example.image)) for example in examples]
