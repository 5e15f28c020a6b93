"""An uploaded file as the picture the person sees: upright, RGB, without the camera's metadata."""

import io
import warnings
from typing import Any

import gradio as gr
from PIL import Image, ImageOps, UnidentifiedImageError

LARGEST_SIDE = 8192  # pixels


def as_png(upload: dict[str, Any] | None) -> bytes | None:
    """PNG bytes of Gradio's upload (a file in its cache), None for none; gr.Error where it is not a usable image."""
    if upload is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(upload["path"]) as image:
                if max(image.size) > LARGEST_SIDE:
                    size = f"{image.width} × {image.height}"
                    raise gr.Error(f"The image is {size} pixels; at most {LARGEST_SIDE} a side.", print_exception=False)
                upright = ImageOps.exif_transpose(image).convert("RGB")
    except (UnidentifiedImageError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise gr.Error("That file is not an image this page can read.", print_exception=False) from error
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises on a file that breaks off
        raise gr.Error("That image is damaged and cannot be read.", print_exception=False) from error
    upright.info.clear()
    out = io.BytesIO()
    upright.save(out, "PNG")
    return out.getvalue()
