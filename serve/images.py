"""Images as they come in: a data URL or raw bytes, checked before anything decodes them."""

import base64
import binascii
import hashlib
import io
import warnings
from dataclasses import dataclass

from PIL import Image, ImageOps

from serve.errors import invalid
from serve.settings import Settings

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


@dataclass(frozen=True)
class Picture:
    """A decoded picture, RGB and upright, and the SHA-256 of the file it came in."""

    image: Image.Image
    digest: bytes


def bytes_of_data_url(url: str, settings: Settings, param: str) -> bytes:
    """The bytes in ``data:image/…;base64,…``. Other addresses are refused: the gateway fetches nothing for anybody."""
    head, comma, payload = url.partition(",")
    if not head.startswith("data:") or not comma:
        raise invalid(f"{param} must be a data URL (data:image/png;base64,…), not an address to fetch", param)
    if not head.endswith(";base64"):
        raise invalid(f"{param} is a data URL without base64: only data:image/…;base64,… is read", param)
    if len(payload) > settings.max_image_bytes * 4 // 3 + 4:
        raise _too_many_bytes(settings, param)
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid(f"{param} is not valid base64", param) from error


def decode_image(data: bytes, settings: Settings, param: str) -> Picture:
    """The picture in a file; 400 where it is too large or not an image."""
    if len(data) > settings.max_image_bytes:
        raise _too_many_bytes(settings, param)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit comes next
            picture = Image.open(io.BytesIO(data), formats=FORMATS)
        width, height = picture.size
        if width * height > settings.max_image_pixels:
            raise invalid(
                f"{param} is {width} x {height} pixels: at most {settings.max_image_pixels} in all are read", param
            )
        return Picture(ImageOps.exif_transpose(picture).convert("RGB"), hashlib.sha256(data).digest())
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise invalid(f"{param} is not an image that can be read ({', '.join(FORMATS)})", param) from error


def _too_many_bytes(settings: Settings, param: str) -> Exception:
    return invalid(f"{param} is larger than the {settings.max_image_bytes} bytes that are read", param)
