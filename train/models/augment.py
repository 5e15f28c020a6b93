"""Random changes of images: crops and mirror images for clients, corruptions for a server's anchors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from train.data import Example

SCALE = (0.08, 1.0)
"""Share of the image's area that a crop may have."""


def crop_flip(examples: Sequence[Example], size: int, random: torch.Generator) -> list[Image.Image]:
    """Each image cropped at random, resized to ``size`` squared (bicubic) and mirrored with probability ½.

    CLIP's few-shot methods train with it (CoOp, Zhou et al. 2022).
    """
    crop = v2.RandomResizedCrop(size, SCALE, interpolation=v2.InterpolationMode.BICUBIC)
    change = v2.Compose([crop, v2.RandomHorizontalFlip()])
    with _drawing_from(random):
        return [change(Image.fromarray(example.image)) for example in examples]


def corrupt(examples: Sequence[Example], random: torch.Generator) -> list[Image.Image]:
    """Each image through two of eight corruptions, chained as in AugMix (Hendrycks et al. 2020), drawn independently.

    Brightness, contrast, saturation, sharpness, blur, fewer tones, noise, a patch of one colour: what something is,
    and which colour it has, can still be told.
    """
    with _drawing_from(random):
        changed = []
        for example in examples:
            picture = v2.functional.to_image(example.image)
            for choice in torch.randint(len(CORRUPTIONS), (2,)).tolist():
                picture = CORRUPTIONS[choice](picture)
            changed.append(v2.functional.to_pil_image(picture))
        return changed


def _noise(picture: Tensor) -> Tensor:
    sigma = 255 * torch.empty(()).uniform_(0.02, 0.2)
    noisy: Tensor = picture + sigma * torch.randn(picture.shape)
    return noisy.clamp(0, 255).to(torch.uint8)


def _tones(picture: Tensor) -> Tensor:
    fewer: Tensor = v2.functional.posterize(picture, bits=int(torch.randint(1, 5, ())))
    return fewer


def _patch(picture: Tensor) -> Tensor:
    """A square of ⅛ to ⅜ of the side."""
    side = picture.shape[-1]
    size = int(torch.randint(side // 8, 3 * side // 8, ()))
    top, left = torch.randint(side - size, (2,)).tolist()
    colour = torch.randint(256, (3, 1, 1), dtype=torch.uint8)
    covered: Tensor = v2.functional.erase(picture, top, left, size, size, colour)
    return covered


CORRUPTIONS: Final[tuple[Callable[[Tensor], Tensor], ...]] = (
    v2.ColorJitter(brightness=(0.3, 1.5)),
    v2.ColorJitter(contrast=(0.3, 2.0)),
    v2.ColorJitter(saturation=(0.4, 2.0)),
    v2.RandomChoice([v2.RandomAdjustSharpness(factor, p=1.0) for factor in (0.0, 2.0, 4.0, 6.0)]),
    v2.GaussianBlur(5, (0.3, 2.0)),
    _tones,
    _noise,
    _patch,
)


@contextmanager
def _drawing_from(random: torch.Generator) -> Iterator[None]:
    """Within it torch's global generator, which torchvision draws from, starts where ``random`` says."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=random)))
        yield
