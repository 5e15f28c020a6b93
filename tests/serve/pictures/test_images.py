"""Images from outside: what is read, and what is refused before it costs anything."""

import base64
import io
import struct
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from adapters_store.pictures.pixels import to_pixels
from adapters_store.pictures.transform import ImageTransform
from serve.errors import GatewayError
from serve.pictures.images import FORMATS, bytes_of_data_url, check_together, decode_image, open_image
from serve.settings import Settings
from tests.serve.live import data_url, noise, png

SETTINGS = Settings(max_image_bytes=20_000, max_image_pixels=10_000)
TRANSFORM = ImageTransform(size=64, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def same_pixels(data: bytes, expected: Image.Image) -> bool:
    """Whether what is decoded gives the encoder the same numbers, bit by bit, as the whole picture does."""
    found = decode_image(data, TRANSFORM, Settings(), "image").image
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


def file_of(picture: Image.Image, form: str, **options: Any) -> bytes:
    """The picture as a file of that format."""
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", [(64, 64), (100, 70), (3, 90)])
def test_what_is_held_is_small_and_gives_the_same_numbers_as_the_whole(form: str, size: tuple[int, int]) -> None:
    data = file_of(Image.fromarray(noise(1, 128)).resize(size), form)
    assert same_pixels(data, Image.open(io.BytesIO(data)))


@pytest.mark.parametrize(("size", "reason"), [((1, 9000), "at most 8192 a side"), ((9000, 1), "at most 8192 a side")])
def test_a_thin_picture_is_refused_by_its_longer_side(size: tuple[int, int], reason: str) -> None:
    assert reason in refusal(data_url(np.zeros((*size, 3), np.uint8)))


def test_the_pixels_of_a_request_are_counted_together() -> None:
    opened = [open_image(png(noise(number)), SETTINGS, f"image {number}") for number in range(3)]
    check_together(opened[:2], Settings(max_request_pixels=2 * 64 * 64))
    with pytest.raises(GatewayError, match="have 12288 pixels together: at most 8192") as refused:
        check_together(opened, Settings(max_request_pixels=2 * 64 * 64))
    assert refused.value.status == 400


def exif(entries: bytes) -> bytes:
    """EXIF with these entries of twelve bytes each in its only directory."""
    return b"Exif\0\0MM\0\x2a\0\0\0\x08" + struct.pack(">H", len(entries) // 12) + entries + bytes(4)


SIXTH = struct.pack(">HHII", 0x0112, 3, 1, 6 << 16)  # "rotate by 90 degrees"
CRAFTED = {
    "no directory": b"Exif\0\0",
    "cut": exif(SIXTH)[:12],
    "rational by zero": exif(struct.pack(">HHII", 0x0112, 5, 1, 0)),
    "text for a number": exif(struct.pack(">HHI4s", 0x0112, 2, 4, b"six\0")),
    "a list": exif(struct.pack(">HHIHH", 0x0112, 3, 2, 6, 6)),
    "bytes where a number goes": exif(struct.pack(">HHI4s", 0x011A, 7, 4, b"abcd") + SIXTH),
    "a directory in itself": exif(struct.pack(">HHII", 0x8769, 4, 1, 8) + SIXTH),
    "a directory far away": exif(struct.pack(">HHII", 0x8769, 4, 1, 0xFFFFFFF0)),
    "as many as there can be": exif(struct.pack(">HHII", 0x0112, 3, 0xFFFFFFFF, 0)),
    "not EXIF": b"Exif\0\0XX" + bytes(range(256)),
}


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("crafted", CRAFTED)
def test_metadata_that_cannot_be_read_is_not_needed(form: str, crafted: str) -> None:
    data = file_of(Image.fromarray(noise(2)), form, exif=CRAFTED[crafted])
    assert decode_image(data, TRANSFORM, SETTINGS, "image").image.size == (64, 64)


@pytest.mark.parametrize("form", FORMATS)
def test_whatever_the_bytes_are_there_is_a_picture_or_a_400(form: str) -> None:
    random = np.random.default_rng(FORMATS.index(form))
    options: dict[str, Any] = {"exif": CRAFTED["bytes where a number goes"]} if form in ("JPEG", "PNG", "WEBP") else {}
    whole = np.frombuffer(file_of(Image.fromarray(noise(3, 24)), form, **options), np.uint8)
    seen = set()
    for _ in range(400):
        data = whole.copy()
        for _ in range(random.integers(1, 6)):  # in the head, where most of the meaning is
            data[random.integers(0, min(len(data), 200))] = random.integers(0, 256)
        cut = int(random.integers(len(data) // 2, len(data) + 1))
        try:
            picture = decode_image(data[:cut].tobytes(), TRANSFORM, SETTINGS, "image")
            seen.add(picture.image.size)
        except GatewayError as error:
            seen.add(error.status)
    assert seen <= {(64, 64), 400}


def test_a_damaged_exif_that_raises_anything_is_left_out() -> None:
    """Seeded mutations of the metadata alone: the picture beside it is sound, and has to come through."""
    random = np.random.default_rng(0)
    sound = np.frombuffer(CRAFTED["bytes where a number goes"], np.uint8)
    for _ in range(300):
        metadata = sound.copy()
        metadata[random.integers(6, len(metadata), 4)] = random.integers(0, 256, 4)
        data = file_of(Image.fromarray(noise(2, 8)), "JPEG", exif=metadata.tobytes())
        assert decode_image(data, TRANSFORM, SETTINGS, "image").image.size == (64, 64)


def test_of_an_animation_only_the_first_picture_is_decoded() -> None:
    frames = [Image.fromarray(noise(seed, 32)) for seed in range(20)]
    for form in ("GIF", "WEBP", "PNG"):
        options = {"lossless": True} if form == "WEBP" else {}
        data = file_of(frames[0], form, save_all=True, append_images=frames[1:], **options)
        assert same_pixels(data, Image.open(io.BytesIO(data)))


def test_text_beside_a_picture_that_grows_when_it_is_read_is_refused() -> None:
    chunks = PngInfo()
    for number in range(70):
        chunks.add_text(f"bomb{number}", "x" * 1_000_000, zip=True)  # 70 MB in 80 KB
    data = file_of(Image.fromarray(noise(0, 8)), "PNG", pnginfo=chunks)
    settings = Settings()
    with pytest.raises(GatewayError, match="not an image"):
        decode_image(data, TRANSFORM, settings, "image")
