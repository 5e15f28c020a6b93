"""Images from outside: what is read, and what is refused before it costs anything."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from serve.errors import GatewayError
from serve.images import bytes_of_data_url, decode_image
from serve.settings import Settings
from tests.serve.live import data_url, noise, png

SETTINGS = Settings(max_image_bytes=20_000, max_image_pixels=10_000)


def refusal(url: str) -> str:
    """The sentence a data URL is refused with."""
    with pytest.raises(GatewayError) as refused:
        decode_image(bytes_of_data_url(url, SETTINGS, "image"), SETTINGS, "image")
    assert refused.value.status == 400
    assert refused.value.param == "image"
    return refused.value.message


def test_a_png_comes_through_unchanged() -> None:
    image = noise(0)
    assert np.array_equal(decode_image(png(image), SETTINGS, "image").image, image)
    assert bytes_of_data_url(data_url(image), SETTINGS, "image") == png(image)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1"])
def test_other_colour_modes_become_rgb(mode: str) -> None:
    buffer = io.BytesIO()
    Image.fromarray(noise(0)).convert(mode).save(buffer, "PNG")
    assert decode_image(buffer.getvalue(), SETTINGS, "image").image.mode == "RGB"


def test_a_photograph_is_turned_upright() -> None:
    picture = Image.fromarray(noise(0, 32)).resize((32, 16))
    exif = picture.getexif()
    exif[0x0112] = 6  # "rotate by 90 degrees"
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", exif=exif)
    assert decode_image(buffer.getvalue(), SETTINGS, "image").image.size == (16, 32)


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
