import io
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from PIL import Image

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


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "I;16"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    Image.new(mode, (3, 3)).save(tmp_path / "a.tiff")
    assert opened(as_png((tmp_path / "a.tiff").read_bytes())).mode == "RGB"


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
