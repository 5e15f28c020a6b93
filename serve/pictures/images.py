"""Images as they come in: a data URL or raw bytes, checked before anything decodes them, and made small at once."""

import base64
import binascii
import hashlib
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from PIL import Image

from adapters_store.pictures.pixels import squared
from adapters_store.pictures.reader import UnfaithfulError, Window, seen
from adapters_store.pictures.transform import ImageTransform
from serve.errors import invalid
from serve.settings import Settings

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


@dataclass(frozen=True)
class Picture:
    """A decoded picture, RGB, upright and of an encoder's size, and the SHA-256 of its file and window.

    What is held is the encoder's square, some hundred kilobytes; the file may have had a hundred times as much.
    """

    image: Image.Image
    digest: bytes


@dataclass(frozen=True)
class Sent:
    """An image of a request: its data URL, the name of the field it is in, and what window it is seen through."""

    url: str
    param: str
    window: Window | None = None


@dataclass(frozen=True)
class Opened:
    """A file of an image whose head has been read, and none of its pixels."""

    image: Image.Image
    digest: bytes
    param: str  # the request's field it came in
    window: Window | None = None


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


def open_image(data: bytes, settings: Settings, param: str, window: Window | None = None) -> Opened:
    """The image in a file, not yet decoded; 400 where it is too large or not an image."""
    if len(data) > settings.max_image_bytes:
        raise _too_many_bytes(settings, param)
    with _readable(param), warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limits come next
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    _check_size(image, settings, param)
    through = b"" if window is None else repr(window).encode()
    return Opened(image, hashlib.sha256(data + through).digest(), param, window)


def check_together(opened: Sequence[Opened], settings: Settings) -> None:
    """400 where the images of one request have too many pixels together."""
    found, allowed = sum(one.image.width * one.image.height for one in opened), settings.max_request_pixels
    if found > allowed:
        raise invalid(f"the images have {found} pixels together: at most {allowed} are read", opened[-1].param)


def decode(opened: Opened, transform: ImageTransform) -> Picture:
    """The picture, as the encoder with that transform takes it; 400 where it is not an image."""
    with _readable(opened.param):
        return Picture(squared(seen(opened.image, opened.window), transform), opened.digest)


def decode_image(
    data: bytes, transform: ImageTransform, settings: Settings, param: str, window: Window | None = None
) -> Picture:
    """The picture in a file, as the encoder with that transform takes it; 400 where it cannot be read."""
    return decode(open_image(data, settings, param, window), transform)


@contextmanager
def _readable(param: str) -> Iterator[None]:
    """400 for whatever happens within: the bytes are a stranger's, and a decoder may raise anything."""
    try:
        yield
    except UnfaithfulError as error:
        raise invalid(f"{param} {error}", param) from error
    except Exception as error:
        raise invalid(f"{param} is not an image that can be read ({', '.join(FORMATS)})", param) from error


def _check_size(picture: Image.Image, settings: Settings, param: str) -> None:
    width, height = picture.size
    if width * height > settings.max_image_pixels:
        raise invalid(
            f"{param} is {width} x {height} pixels: at most {settings.max_image_pixels} in all are read", param
        )
    if max(width, height) > settings.max_image_side:  # a resize takes memory by the longer side, however thin it is
        raise invalid(f"{param} is {width} x {height} pixels: at most {settings.max_image_side} a side are read", param)


def _too_many_bytes(settings: Settings, param: str) -> Exception:
    return invalid(f"{param} is larger than the {settings.max_image_bytes} bytes that are read", param)
