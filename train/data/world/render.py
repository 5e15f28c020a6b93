"""Pictures of scenes: glyph templates placed by `grid_sample`, then painted in a visual style.

Letters: B scenes, K = 3 objects, S = 64 pixels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from train.data.world.glyphs import GLYPH, REACH, TEMPLATE, load_glyphs
from train.data.world.scenes import Scenes
from train.data.world.styles import PAINTERS, Draw, Layers
from train.data.world.vocabulary import HSV, IMAGE_SIZE, STYLES

FAR = -99.0
"""Signed distance where an object is absent, pixels."""


def _placements(scenes: Scenes) -> Tensor:
    """(B, K, 2, 3) for `affine_grid`: from the image's coordinates to each object's template's."""
    cos, sin = scenes.angle.cos(), scenes.angle.sin()
    turn = torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)
    width = scenes.stretch.sqrt()
    form = torch.stack(
        [torch.stack([1 / width, -scenes.slant], -1), torch.stack([torch.zeros_like(width), width], -1)], -2
    )
    scale = GLYPH / (TEMPLATE / 2) / scenes.size[..., None, None]
    linear = form @ turn * scale
    offset = linear @ ((IMAGE_SIZE - 1) / 2 - scenes.centre)[..., None]
    return torch.cat([linear * (IMAGE_SIZE / 2), offset], -1)


def distances(scenes: Scenes) -> Tensor:
    """(B, K, S, S) signed distance to each object's edge, pixels, positive inside."""
    device = scenes.glyph.device
    out = torch.full((*scenes.glyph.shape, IMAGE_SIZE, IMAGE_SIZE), FAR, device=device)
    present = scenes.glyph >= 0
    if not present.any():
        return out
    bank = load_glyphs().to(device)
    templates = bank.distance[bank.index(scenes.glyph[present], scenes.font[present])]
    grid = F.affine_grid(_placements(scenes)[present], [len(templates), 1, IMAGE_SIZE, IMAGE_SIZE], align_corners=False)
    sampled = F.grid_sample(templates + REACH, grid, align_corners=False).squeeze(1) - REACH
    size = scenes.size[present][:, None, None]
    sampled = torch.where(sampled <= 0.2 - REACH, FAR, sampled * size / GLYPH)
    out[present] = sampled + scenes.weight[present][:, None, None] / 100 * size
    return out


def boxes(distance: Tensor) -> Tensor:
    """(B, K, 4) first and last column and row of every object (x0, y0, x1, y1), inclusive; zeros where absent."""
    inside = distance > 0
    columns, rows = inside.any(-2), inside.any(-1)
    first_last = [
        edge
        for line in (columns, rows)
        for edge in (line.int().argmax(-1), IMAGE_SIZE - 1 - line.flip(-1).int().argmax(-1))
    ]
    x0, x1, y0, y1 = first_last
    return torch.stack([x0, y0, x1, y1], -1) * inside.flatten(2).any(-1)[..., None]


def hsv_to_rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """(…, 3) RGB in 0–1 of a hue in degrees and a saturation and value in 0–1."""
    k = (torch.tensor([5.0, 3.0, 1.0], device=hue.device) + hue[..., None] / 60) % 6
    depth = torch.minimum(k, 4 - k).clamp(0, 1)
    return value[..., None] * (1 - saturation[..., None] * depth)


def _shades(colour: Tensor, draw: Draw) -> Tensor:
    """(B, K, 3) RGB near every object's nominal colour."""
    nominal = torch.tensor(list(HSV.values()), device=colour.device)[colour]
    hue = nominal[..., 0] + draw.uniform(-6, 6, *colour.shape)
    saturation = nominal[..., 1] * draw.uniform(0.88, 1.05, *colour.shape)
    value = nominal[..., 2] * draw.uniform(0.9, 1.05, *colour.shape)
    return hsv_to_rgb(hue, saturation.clamp(0, 1), value.clamp(0, 1))


def render(scenes: Scenes, style: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Pictures (B, 3, S, S) in 0–1 and the objects' signed distances (B, K, S, S); style (B,) indexes STYLES.

    The generator must live on the scenes' device; equal arguments give equal pictures.
    """
    distance = distances(scenes)
    draw = Draw(generator)
    rgb = _shades(scenes.colour, draw)
    images = torch.empty(len(scenes), 3, IMAGE_SIZE, IMAGE_SIZE, device=distance.device)
    for index in style.unique().tolist():
        rows = style == index
        images[rows] = PAINTERS[STYLES[index]](Layers(distance[rows], rgb[rows]), draw)
    return images.clamp(0, 1), distance


def to_bytes(images: Tensor) -> Tensor:
    """(B, S, S, 3) uint8 of pictures (B, 3, S, S) in 0–1."""
    return (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
