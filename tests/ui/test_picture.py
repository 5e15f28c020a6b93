import io
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from PIL import Image

from adapters_store.pictures.reader import seen
from ui.picture import MOST_PIXELS, SENT_SIDE, as_png


def opened(png: bytes | None) -> Image.Image:
    assert png is not None
    return Image.open(io.BytesIO(png))


def test_pixels_are_passed_on_unchanged_and_nothing_else(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    exif = Image.Exif()
    exif[0x010E] = "a ward number"
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    sent = as_png((tmp_path / "a.png").read_bytes())
    assert np.array_equal(np.asarray(opened(sent)), pixels)
    assert b"ward" not in sent


def test_a_picture_turned_by_the_camera_is_sent_as_it_is_seen(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise
    Image.new("RGB", (4, 2)).save(tmp_path / "a.jpg", exif=exif)
    assert opened(as_png((tmp_path / "a.jpg").read_bytes())).size == (2, 4)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "P", "CMYK", "1", "I;16"])
def test_the_gateway_sees_what_it_would_see_in_the_file(mode: str) -> None:
    random = np.random.default_rng(0)
    if mode == "I;16":
        image = Image.fromarray(random.integers(0, 65536, (5, 7), np.uint16))
    else:
        image = Image.fromarray(random.integers(0, 256, (5, 7, 4), np.uint8)).convert(mode)
    file = io.BytesIO()
    image.save(file, "TIFF" if mode == "CMYK" else "PNG")
    assert np.array_equal(np.asarray(seen(opened(as_png(file.getvalue())))), np.asarray(seen(Image.open(file))))


def test_wide_greys_are_sent_small_too_and_not_at_all_where_they_have_no_range() -> None:
    def tiff(values: np.ndarray) -> bytes:
        file = io.BytesIO()
        Image.fromarray(values).save(file, "TIFF")
        return file.getvalue()

    large = opened(as_png(tiff(np.full((10, 2 * SENT_SIDE), 40000, np.uint16))))
    assert large.size == (SENT_SIDE, 5)
    assert np.asarray(large).min() == np.asarray(large).max() == 40000
    for kind in (np.int32, np.float32):
        with pytest.raises(gr.Error, match="32-bit values"):
            as_png(tiff(np.zeros((3, 3), kind)))


def test_a_photograph_is_sent_small_enough_for_the_gateway(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (2000, 3000, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.jpg")
    sent = as_png((tmp_path / "a.jpg").read_bytes())
    assert opened(sent).size == (SENT_SIDE, SENT_SIDE * 2 // 3)
    assert len(sent) < 8 << 20


def test_no_picture_is_none() -> None:
    assert as_png(None) is None


def test_what_is_no_usable_image_is_a_sentence(tmp_path: Path) -> None:
    text, half, long = tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png"
    text.write_bytes(b"<svg/>")
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(whole, "PNG")
    half.write_bytes(whole.getvalue()[:2000])
    Image.new("1", (MOST_PIXELS // 5000 + 1, 5000)).save(long)
    for path, sentence in ((text, "not an image"), (half, "damaged"), (long, "more than 50 million pixels")):
        with pytest.raises(gr.Error, match=sentence):
            as_png(path.read_bytes())
