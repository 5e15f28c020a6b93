"""An uploaded file as the picture the person sees: upright, RGB, without the camera's metadata."""

import io
import warnings
from typing import Any

import gradio as gr
from PIL import Image, ImageOps, UnidentifiedImageError

MOST_PIXELS = 50_000_000  # of an upload
SENT_SIDE = 1536  # pixels; encoders take a few hundred, and this stays below the gateway's size limit as PNG


def as_png(upload: dict[str, Any] | None) -> bytes | None:
    """PNG bytes of Gradio's upload (a file in its cache), None for none; gr.Error where it is not a usable image."""
    if upload is None:
        return None
    try:
        upright = _upright(upload["path"])
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise gr.Error("That file is not an image this page can read.", print_exception=False) from error
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises on a file that breaks off
        raise gr.Error("That image is damaged and cannot be read.", print_exception=False) from error
    if upright is None:
        raise gr.Error(f"That image has more than {MOST_PIXELS // 10**6} million pixels.", print_exception=False)
    upright.info.clear()
    upright.thumbnail((SENT_SIDE, SENT_SIDE))  # leaves a smaller picture as it is
    out = io.BytesIO()
    upright.save(out, "PNG")
    return out.getvalue()


def _upright(path: str) -> Image.Image | None:
    """The picture turned as it is seen; None where it is too large, found before any pixel is decoded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit is ours
        with Image.open(path) as image:
            if image.width * image.height > MOST_PIXELS:
                return None
            return ImageOps.exif_transpose(image).convert("RGB")
