"""Images from outside: what is read, and what is refused before it costs anything."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from adapters_store.manifest import ImageTransform
from adapters_store.personal.images import to_pixels
from serve.errors import GatewayError
from serve.images import bytes_of_data_url, decode_image
from serve.settings import Settings
from tests.serve.live import data_url, noise, png

SETTINGS = Settings(max_image_bytes=20_000, max_image_pixels=10_000)
TRANSFORM = ImageTransform(size=64, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def same_pixels(data: bytes, expected: Image.Image) -> bool:
    """Whether what is decoded gives the encoder the same numbers, bit by bit, as the whole picture does."""
    found = decode_image(data, TRANSFORM, SETTINGS, "image").image
    return found.size == (64, 64) and torch.equal(to_pixels(found, TRANSFORM), to_pixels(expected, TRANSFORM))


def refusal(url: str) -> str:
    """The sentence a data URL is refused with."""
    with pytest.raises(GatewayError) as refused:
        decode_image(bytes_of_data_url(url, SETTINGS, "image"), TRANSFORM, SETTINGS, "image")
    assert refused.value.status == 400
    assert refused.value.param == "image"
    return refused.value.message


def test_a_png_comes_through_unchanged() -> None:
    image = noise(0)
    assert np.array_equal(decode_image(png(image), TRANSFORM, SETTINGS, "image").image, image)
    assert bytes_of_data_url(data_url(image), SETTINGS, "image") == png(image)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1"])
def test_other_colour_modes_become_rgb(mode: str) -> None:
    buffer = io.BytesIO()
    Image.fromarray(noise(0)).convert(mode).save(buffer, "PNG")
    assert decode_image(buffer.getvalue(), TRANSFORM, SETTINGS, "image").image.mode == "RGB"


def test_a_photograph_is_turned_upright() -> None:
    for orientation in range(1, 9):
        picture = Image.fromarray(noise(0, 32)).resize((32, 16))
        exif = picture.getexif()
        exif[0x0112] = orientation
        buffer = io.BytesIO()
        picture.save(buffer, "PNG", exif=exif)
        upright = ImageOps.exif_transpose(Image.open(buffer))
        assert same_pixels(buffer.getvalue(), upright)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/a.png", "https://example.org/a.png", "file:///etc/passwd", "/etc/passwd", ""]
)
def test_addresses_are_not_fetched(url: str) -> None:
    assert "must be a data URL" in refusal(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("data:image/png;base64,@@@", "not valid base64"),
        ("data:image/png,abc", "without base64"),
        ("data:image/png;base64,", "not an image"),
        ("data:image/png;base64," + base64.b64encode(b"<svg></svg>").decode(), "not an image"),
        ("data:image/png;base64," + base64.b64encode(png(noise(0))[:200]).decode(), "not an image"),
        ("data:image/png;base64," + "A" * 40_000, "larger than the 20000 bytes"),
        (data_url(np.zeros((200, 200, 3), np.uint8)), "200 x 200 pixels"),
    ],
)
def test_what_is_not_a_small_image_is_refused(url: str, reason: str) -> None:
    assert reason in refusal(url)
