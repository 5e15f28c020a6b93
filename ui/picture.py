"""An uploaded file as the gateway is sent it: upright, of the same colours, without the camera's metadata."""

import asyncio
import io
import warnings

import gradio as gr
from PIL import Image, ImageOps, UnidentifiedImageError

MOST_PIXELS = 50_000_000  # of an upload
SENT_SIDE = 1536  # pixels; encoders take a few hundred, and this stays below the gateway's size limit as PNG

DECODING = asyncio.Semaphore(2)


async def sent(upload: bytes | None) -> bytes | None:
    """As ``as_png``, off the event loop; few at a time, since a decoded picture may take a few hundred megabytes."""
    async with DECODING:
        return await asyncio.to_thread(as_png, upload)


def as_png(upload: bytes | None) -> bytes | None:
    """PNG bytes of an uploaded file's bytes, None for none; gr.Error where they are not a usable image."""
    if upload is None:
        return None
    try:
        upright = _upright(upload)
    except gr.Error:
        raise
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise gr.Error("That file is not an image this page can read.", print_exception=False) from error
    except Exception as error:  # Pillow raises many things on a file that breaks off or was made to harm
        raise gr.Error("That image is damaged and cannot be read.", print_exception=False) from error
    if upright is None:
        raise gr.Error(f"That image has more than {MOST_PIXELS // 10**6} million pixels.", print_exception=False)
    upright.info.clear()
    upright.thumbnail((SENT_SIDE, SENT_SIDE))  # leaves a smaller picture as it is
    out = io.BytesIO()
    (upright.convert("I;16") if upright.mode == "I" else upright).save(out, "PNG")
    return out.getvalue()


def _upright(upload: bytes) -> Image.Image | None:
    """The picture turned as it is seen; None where it is too large, found before any pixel is decoded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit is ours
        with Image.open(io.BytesIO(upload)) as image:
            if image.width * image.height > MOST_PIXELS:
                return None
            image.draft("RGB", (SENT_SIDE, SENT_SIDE))  # a JPEG is decoded at a half, quarter or eighth at once
            ImageOps.exif_transpose(image, in_place=True)
            image.load()
            return image.convert(_kept(image))


def _kept(image: Image.Image) -> str:
    """The mode in which the gateway is sent all that it would see in the file itself."""
    if image.mode in ("I", "F"):
        raise gr.Error("That image has 32-bit values, which cannot be shown as they are meant.", print_exception=False)
    if image.mode.startswith("I;16"):
        return "I"  # of which a thumbnail can be made
    return "RGBA" if image.has_transparency_data else "RGB"
