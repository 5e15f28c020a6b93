"""The words of the embedded world: what its objects, colours, places and visual styles are called."""

from typing import Final

SHAPES: Final = ("circle", "square", "triangle", "star", "heart", "cross", "ring", "moon", "diamond", "arrow")
DIGITS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
GLYPHS: Final = SHAPES + DIGITS
"""Glyph classes: index 0–9 are the shapes, 10–19 the digits 0–9."""

HSV: Final = {
    "red": (0, 0.90, 0.90),
    "orange": (28, 0.95, 1.00),
    "yellow": (56, 0.90, 1.00),
    "green": (125, 0.85, 0.70),
    "cyan": (182, 0.75, 0.95),
    "blue": (228, 0.90, 0.90),
    "purple": (278, 0.80, 0.65),
    "pink": (328, 0.45, 1.00),
}
"""Nominal hue (degrees), saturation and value of every colour; scenes jitter them."""
COLOURS: Final = tuple(HSV)

PUBLIC_STYLES: Final = ("flat", "photo", "texture")
"""What the embedded base was pretrained on."""
HELD_OUT_STYLES: Final = ("sketch", "cartoon", "paint", "pixel", "stipple", "hatch", "night", "inverted")
"""What it never saw: room for a client to personalise."""
STYLES: Final = PUBLIC_STYLES + HELD_OUT_STYLES
HANDWRITING: Final = "handwriting"
"""The style of scikit-learn's digits, which are not rendered."""

CELLS: Final = (
    "top left",
    "top",
    "top right",
    "left",
    "center",
    "right",
    "bottom left",
    "bottom",
    "bottom right",
)
"""Names of the nine thirds of an image, row by row."""

IMAGE_SIZE: Final = 64
"""Edge of every embedded image, pixels."""
MAX_OBJECTS: Final = 3

PROMPT_TEMPLATE: Final = "a photo of a {class}."
"""Zero-shot prompt of the embedded CLIP."""


def object_name(glyph: int, colour: int) -> str:
    """ "red star" for the indices of a glyph class and a colour."""
    return f"{COLOURS[colour]} {GLYPHS[glyph]}"
