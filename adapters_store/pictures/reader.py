"""A picture as training and serving both see it: one reader, so that the same file is the same pixels on both sides.

What a file can say of a picture besides its colours, and what is made of it:

    orientation (EXIF)   turned upright; metadata that cannot be read turns nothing
    transparency         laid over white, as a page shows it
    16-bit greyscale     the full range of the type: 0 is black, 65535 white (PGM: its own largest); or a window
    16-bit colour        the upper 8 bits of each value, as Pillow reads them; no window
    32-bit greyscale     through a window; without one it is refused, since such numbers have no range of their own
    animation            the first frame
    palette, CMYK, …     their colours as RGB; a colour profile (ICC) is left out, as by the bases' own processors

A window is (centre, width) as in DICOM (PS3.3 C.11.2.1.3.2, LINEAR_EXACT): values from centre − width/2 to
centre + width/2 become black to white, what is beyond them is black or white. It is for greyscale pictures only, whose
one transparent value, if any, stays a grey.
"""

from typing import Final

import numpy as np
from PIL import ExifTags, Image

Window = tuple[float, float]
WIDE_GREYS: Final = ("I;16", "I;16L", "I;16B", "I;16N", "I", "F")
"""Pillow's modes of more than 8 bits a value, all of them grey."""
PGM: Final = ("I", "PPM")
"""Mode and format of a PGM of more than 8 bits, whose values Pillow has brought to 0 … 65535."""
WHITE_16: Final = 65535
TURNS: Final = {  # EXIF's orientations, and what undoes them
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnfaithfulError(ValueError):
    """A picture whose values cannot be shown as they are meant; the sentence begins after the picture's name."""


def seen(image: Image.Image, window: Window | None = None) -> Image.Image:
    """The opened picture as RGB, upright. UnfaithfulError where it cannot be read faithfully; Pillow's own errors where
    its bytes are damaged.
    """
    image.load()  # first: a damaged picture is refused, damaged metadata alone is not
    turn = _turn(image)
    upright = image if turn is None else image.transpose(turn)
    if window is not None or upright.mode in WIDE_GREYS:
        return _grey(upright, window).convert("RGB")
    if not upright.has_transparency_data:
        return upright.convert("RGB")
    over, white = upright.convert("RGBA"), Image.new("RGB", upright.size, "white")
    white.paste(over, mask=over)
    return white


def _turn(image: Image.Image) -> Image.Transpose | None:
    """What turns the picture as its metadata says it is held; None where that cannot be read."""
    try:
        return TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # crafted metadata: struct.error, TypeError, KeyError, RecursionError, …
        return None


def _grey(image: Image.Image, window: Window | None) -> Image.Image:
    """Mode L of a picture of greys, through the window."""
    if image.mode not in ("L", *WIDE_GREYS):
        raise UnfaithfulError(f"is of mode {image.mode}: a window is for greyscale pictures")
    values = np.asarray(image)
    if not np.isfinite(values).all():
        raise UnfaithfulError("has values that are not finite")
    if window is None and image.mode in ("I", "F") and (image.mode, image.format) != PGM:
        raise UnfaithfulError(f"has 32-bit values, {values.min():g} to {values.max():g}: they need a window")
    centre, width = (WHITE_16 / 2, WHITE_16) if window is None else window
    seen_as = np.empty(values.shape, np.uint8)
    for row, found in zip(seen_as, values, strict=True):  # by rows: the whole as float64 would be eight times as large
        row[:] = np.rint(255 * np.clip((found.astype(np.float64) - centre) / width + 0.5, 0, 1))
    return Image.fromarray(seen_as)
