"""What a scene contains: one to three glyphs with their colour, size and place, drawn in batches.

Letters: B scenes, K = 3 objects, C = 160 pairs of glyph class and colour.
"""

import math
from dataclasses import dataclass, fields
from typing import Final

import torch
from torch import Tensor

from train.data.world.glyphs import load_glyphs
from train.data.world.vocabulary import COLOURS, GLYPHS, IMAGE_SIZE, MAX_OBJECTS, SHAPES

CELL_CENTRES: Final = torch.tensor([11.5, 31.5, 51.5])
"""Middle of the three columns (and rows) in which objects are placed, pixels."""
JITTER: Final = 3.0
"""Farthest an object lies from its cell's middle, pixels: a third is never in doubt."""
SIZE_RANGES: Final = torch.tensor([[18.0, 44.0], [17.0, 28.0], [15.0, 21.0]])
"""Smallest and largest size, pixels, in scenes of one, two and three objects."""
SINGLE_SIZES: Final = (26.0, 46.0)
"""Sizes of an object that has the image to itself (classification), pixels."""


@dataclass(frozen=True)
class Scenes:
    """B scenes; an absent object has glyph −1."""

    glyph: Tensor
    """(B, K) class 0–19, or −1."""
    font: Tensor
    """(B, K) which font a digit is set in."""
    colour: Tensor
    """(B, K) colour 0–7."""
    centre: Tensor
    """(B, K, 2) x and y, pixels."""
    size: Tensor
    """(B, K) longer edge, pixels."""
    angle: Tensor
    """(B, K) rotation, radians."""
    stretch: Tensor
    """(B, K) width against height, 1 = as designed."""
    slant: Tensor
    """(B, K) shear."""
    weight: Tensor
    """(B, K) how much thicker than designed, in hundredths of the size."""

    def __len__(self) -> int:
        return len(self.glyph)

    @property
    def count(self) -> Tensor:
        """(B,) objects in each scene."""
        return (self.glyph >= 0).sum(1)

    def to(self, device: torch.device) -> "Scenes":
        return Scenes(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def pair_weights(glyphs: list[int], colours: list[int]) -> Tensor:
    """(C,) equal weights on the pairs of the given glyph classes and colours, zero elsewhere."""
    weights = torch.zeros(len(GLYPHS), len(COLOURS))
    weights[torch.tensor(glyphs)[:, None], torch.tensor(colours)] = 1.0
    return weights.flatten()


def _uniform(generator: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(*shape, generator=generator)


def _draw_pairs(weights: Tensor, batch: int, generator: torch.Generator) -> Tensor:
    """(B, K) distinct pairs; half of the scenes use few classes and colours, so that objects often share one."""
    grid = weights.view(1, len(GLYPHS), len(COLOURS)).expand(batch, -1, -1)
    keys = torch.rand(batch, len(GLYPHS), 1, generator=generator) + 2.0 * (grid.sum(2, keepdim=True) == 0)
    few_glyphs = keys <= keys.kthvalue(3, dim=1, keepdim=True).values
    keys = torch.rand(batch, 1, len(COLOURS), generator=generator) + 2.0 * (grid.sum(1, keepdim=True) == 0)
    few_colours = keys <= keys.kthvalue(3, dim=2, keepdim=True).values
    restricted = torch.rand(batch, 1, 1, generator=generator) < 0.5
    allowed = grid * torch.where(restricted, (few_glyphs & few_colours).float(), torch.ones(()))
    return torch.multinomial(allowed.flatten(1) + 1e-9 * grid.flatten(1), MAX_OBJECTS, generator=generator)


def _form(pair: Tensor, centre: Tensor, size: Tensor, generator: torch.Generator) -> Scenes:
    """Scenes of the given pairs (B, K; −1 = absent) and places, with everything else drawn at random."""
    shape = pair.shape
    glyph = torch.where(pair < 0, -1, pair // len(COLOURS))
    digit = (glyph >= len(SHAPES)).float()
    return Scenes(
        glyph=glyph,
        font=torch.randint(load_glyphs().fonts, shape, generator=generator),
        colour=pair.clamp(min=0) % len(COLOURS),
        centre=centre,
        size=size,
        angle=_uniform(generator, -1, 1, *shape) * math.radians(15),
        stretch=_uniform(generator, -0.16, 0.16, *shape).exp(),
        slant=_uniform(generator, -0.08, 0.08, *shape) * (1 + 2 * digit),
        weight=_uniform(generator, -1.0, 1.5, *shape) * (0.5 + 1.5 * digit),
    )


def _fit(size: Tensor, centre: Tensor, spare: float) -> Tensor:
    """Sizes cut down so that no object leaves the image by more than `spare` pixels."""
    border = torch.minimum(centre, IMAGE_SIZE - 1 - centre).amin(-1)
    return torch.minimum(size, 2 * (border + spare))


def sample_scenes(
    batch: int,
    generator: torch.Generator,
    weights: Tensor | None = None,
    counts: tuple[float, float, float] = (1, 1, 1),
) -> Scenes:
    """Scenes whose objects stand in different columns and never share both class and colour.

    weights (C,): how often each pair occurs, at least three above zero; counts: weights of one, two, three objects.
    """
    weights = torch.ones(len(GLYPHS) * len(COLOURS)) if weights is None else weights
    pair = _draw_pairs(weights, batch, generator)
    count = 1 + torch.multinomial(torch.tensor(counts, dtype=torch.float), batch, replacement=True, generator=generator)
    absent = torch.arange(MAX_OBJECTS) >= count[:, None]
    column = torch.rand(batch, MAX_OBJECTS, generator=generator).argsort(1)
    row = torch.randint(3, (batch, MAX_OBJECTS), generator=generator)
    centre = torch.stack([CELL_CENTRES[column], CELL_CENTRES[row]], -1)
    centre = centre + _uniform(generator, -JITTER, JITTER, *centre.shape)
    low, high = SIZE_RANGES[count - 1].unbind(-1)
    size = low[:, None] + (high - low)[:, None] * torch.rand(batch, MAX_OBJECTS, generator=generator)
    distance = torch.cdist(centre, centre) + 99.0 * (torch.eye(MAX_OBJECTS) + absent[:, None, :].float())
    size = torch.minimum(_fit(size, centre, 1.0), distance.amin(2) + 1.0)
    return _form(torch.where(absent, -1, pair), centre, size, generator)


def single_objects(pair: Tensor, generator: torch.Generator) -> Scenes:
    """One large object an image, near the middle; pair (B,) = glyph class · 8 + colour."""
    padded = torch.full((len(pair), MAX_OBJECTS), -1)
    padded[:, 0] = pair
    centre = 31.5 + _uniform(generator, -7, 7, len(pair), MAX_OBJECTS, 2)
    size = _fit(_uniform(generator, *SINGLE_SIZES, len(pair), MAX_OBJECTS), centre, 0.0)
    return _form(padded, centre, size, generator)
