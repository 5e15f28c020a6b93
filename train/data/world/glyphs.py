"""Signed-distance templates of the ten shapes and of the ten digits in many fonts.

The templates lie beside this file, so no font is needed to render. `python -m train.data.world.glyphs FONT…` makes them
anew.
"""

import argparse
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import load_file, save_file
from torch import Tensor

from train.data.world.vocabulary import DIGITS, SHAPES

TEMPLATE: Final = 40
"""Edge of a template, pixels."""
GLYPH: Final = 28
"""Longer edge of the glyph inside its template, pixels; the rest is margin for outlines."""
REACH: Final = 6.0
"""Distance at which the stored value saturates, template pixels."""
OVERSAMPLE: Final = 16
FILE: Final = Path(__file__).with_name("glyphs.safetensors")


@dataclass(frozen=True)
class GlyphBank:
    """All templates. T templates in all; the first ten are the shapes, then the fonts' digits, ten a font."""

    distance: Tensor
    """(T, 1, 40, 40) signed distance to the glyph's edge in template pixels, positive inside."""

    @property
    def fonts(self) -> int:
        """How many fonts the digits come in."""
        return (len(self.distance) - len(SHAPES)) // len(DIGITS)

    def index(self, glyph: Tensor, font: Tensor) -> Tensor:
        """The template of each glyph class in each font; shapes ignore the font."""
        digit = glyph - len(SHAPES)
        return torch.where(digit < 0, glyph, len(SHAPES) + font * len(DIGITS) + digit)

    def to(self, device: torch.device) -> "GlyphBank":
        return GlyphBank(self.distance.to(device))


@functools.cache
def load_glyphs() -> GlyphBank:
    """The committed templates."""
    stored = load_file(FILE)["templates"]
    return GlyphBank(((stored.float() - 128) / 127 * REACH).unsqueeze(1))


def _polygon(radii: list[float], turn: float) -> list[tuple[float, float]]:
    """Corners at equal angles, clockwise from `turn` degrees, at the given radii."""
    angles = [math.radians(turn + 360 * i / len(radii)) for i in range(len(radii))]
    return [(r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]


def _heart() -> list[tuple[float, float]]:
    """The curve (16 sin³t, 13 cos t − 5 cos 2t − 2 cos 3t − cos 4t)."""
    ts = [2 * math.pi * i / 200 for i in range(200)]
    return [
        (16 * math.sin(t) ** 3, -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)))
        for t in ts
    ]


def _outline(shape: str) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """A shape as one filled polygon and one that is cut out of it; y points down."""
    circle = _polygon([1.0] * 120, 0)
    filled: dict[str, list[tuple[float, float]]] = {
        "circle": circle,
        "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        "triangle": _polygon([1.0] * 3, -90),
        "star": _polygon([1.0, 0.42] * 5, -90),
        "heart": _heart(),
        "cross": [
            *((-0.33, -1), (0.33, -1), (0.33, -0.33), (1, -0.33), (1, 0.33), (0.33, 0.33)),
            *((0.33, 1), (-0.33, 1), (-0.33, 0.33), (-1, 0.33), (-1, -0.33), (-0.33, -0.33)),
        ],
        "ring": circle,
        "moon": circle,
        "diamond": [(0, -1), (0.62, 0), (0, 1), (-0.62, 0)],
        "arrow": [(-1, -0.28), (0.1, -0.28), (0.1, -0.8), (1, 0), (0.1, 0.8), (0.1, 0.28), (-1, 0.28)],
    }
    cut = {"ring": [(0.55 * x, 0.55 * y) for x, y in circle], "moon": [(0.85 * x + 0.5, 0.85 * y) for x, y in circle]}
    return filled[shape], cut.get(shape, [])


def _draw_shape(shape: str) -> Image.Image:
    size = 4 * GLYPH * OVERSAMPLE
    image = Image.new("L", (size, size))
    filled, cut = _outline(shape)
    reach = max(max(abs(x), abs(y)) for x, y in filled)
    for polygon, value in ((filled, 255), (cut, 0)):
        if polygon:
            points = [(size / 2 + x / reach * size / 3, size / 2 + y / reach * size / 3) for x, y in polygon]
            ImageDraw.Draw(image).polygon(points, fill=value)
    return image


def _draw_digit(font: ImageFont.FreeTypeFont, digit: int) -> Image.Image:
    image = Image.new("L", (1400, 1400))
    ImageDraw.Draw(image).text((700, 700), str(digit), font=font, fill=255, anchor="mm")
    return image


def signed_distance(image: Image.Image) -> NDArray[np.uint8]:
    """(40, 40) template of a white glyph on black: 128 at its edge, 255 and 1 at 6 pixels inside and outside."""
    from scipy.ndimage import distance_transform_edt  # type: ignore[import-untyped]

    box = image.getbbox()
    if box is None:
        raise ValueError("the glyph is empty: this font lacks it")
    glyph = image.crop(box)
    scale = GLYPH * OVERSAMPLE / max(glyph.size)
    glyph = glyph.resize((max(1, round(glyph.width * scale)), max(1, round(glyph.height * scale))))
    canvas = Image.new("L", (TEMPLATE * OVERSAMPLE,) * 2)
    canvas.paste(glyph, ((canvas.width - glyph.width) // 2, (canvas.height - glyph.height) // 2))
    inside = np.asarray(canvas) > 127
    distance = (distance_transform_edt(inside) - distance_transform_edt(~inside)) / OVERSAMPLE
    small = distance.reshape(TEMPLATE, OVERSAMPLE, TEMPLATE, OVERSAMPLE).mean((1, 3))
    template: NDArray[np.uint8] = np.clip(128 + np.rint(127 * small / REACH), 1, 255).astype(np.uint8)
    return template


def make_templates(fonts: list[Path]) -> NDArray[np.uint8]:
    """(10 + 10 · fonts, 40, 40) templates, in GlyphBank's order."""
    templates = [signed_distance(_draw_shape(shape)) for shape in SHAPES]
    for path in fonts:
        font = ImageFont.truetype(str(path), 900)
        templates += [signed_distance(_draw_digit(font, digit)) for digit in range(10)]
    return np.stack(templates)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the glyph templates from fonts.")
    parser.add_argument("fonts", nargs="+", type=Path, help="font files, in the order their digits are stored")
    fonts = parser.parse_args().fonts
    save_file({"templates": torch.from_numpy(make_templates(fonts))}, FILE, {"fonts": " ".join(f.stem for f in fonts)})
    print(f"{FILE}: {len(fonts)} fonts, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
