"""Random crops and mirror images of a batch, as CLIP's few-shot methods train with them (CoOp, Zhou et al. 2022)."""

import torch
from torch import Tensor
from torchvision.transforms import v2

SCALE = (0.08, 1.0)
"""Share of the image's area that a crop may have."""


def crop_flip(pixels: Tensor, size: int, random: torch.Generator) -> Tensor:
    """Pixels (B, 3, H, W), each cropped at random, resized to ``size`` (bicubic) and mirrored with probability ½."""
    change = v2.Compose([v2.RandomResizedCrop(size, SCALE, interpolation=v2.InterpolationMode.BICUBIC),
                         v2.RandomHorizontalFlip()])  # fmt: skip
    with torch.random.fork_rng(devices=[]):  # torchvision draws from the global generator
        torch.manual_seed(int(torch.randint(2**62, (), generator=random)))
        return torch.stack([change(image) for image in pixels])
