"""How captions are put in CLIP pretraining."""

from typing import Final

PATTERNS: Final = (
    "a photo of a {}.",
    "a picture of a {}.",
    "an image of a {}.",
    "a drawing of a {}.",
    "a {}.",
    "{}",
    "there is a {} in the image.",
    "this is a {}.",
    "the {}",
)
"""One is drawn for each step; the first is the zero-shot prompt."""
