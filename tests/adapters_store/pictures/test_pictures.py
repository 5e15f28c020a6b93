"""One reader of pictures: what is made of every kind of file, and the same of it in training and in serving."""

import io
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from adapters_store.pictures.reader import WIDE_GREYS, UnfaithfulError, seen
from adapters_store.pictures.transform import ImageTransform
from serve.errors import GatewayError
from serve.pictures.images import decode_image
from serve.settings import Settings
from tests.serve.live import noise
from train.data.examples import read_image

SIDE = 48
TRANSFORM = ImageTransform(size=SIDE, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
COLOURS = Image.fromarray(noise(0, SIDE))
OTHER = Image.fromarray(noise(7, SIDE))
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
GREYS = np.random.default_rng(1).integers(0, 65536, (SIDE, SIDE), dtype=np.uint16)
ORIENTATION = 0x0112


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    """The picture as a file."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def see_through(image: Image.Image) -> Image.Image:
    """The picture with an opacity of its own at every pixel."""
    image = image.copy()
    image.putalpha(Image.fromarray(noise(2, SIDE)[..., 0]))
    return image


def turned(orientation: int) -> bytes:
    """A photograph held in that way; of a size that shows whether its sides were exchanged."""
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return saved(COLOURS.resize((SIDE, SIDE // 2)), "JPEG", exif=exif, quality=95)


FILES: dict[str, Callable[[], bytes]] = {
    "RGB": lambda: saved(COLOURS, "PNG"),
    "L": lambda: saved(COLOURS.convert("L"), "PNG"),
    "1": lambda: saved(COLOURS.convert("1"), "PNG"),
    "P": lambda: saved(COLOURS.quantize(16), "PNG"),
    "P, one colour transparent": lambda: saved(COLOURS.quantize(16), "PNG", transparency=3),
    "RGB, one colour transparent": lambda: saved(COLOURS, "PNG", transparency=COLOURS.getpixel((0, 0))),
    "RGBA": lambda: saved(see_through(COLOURS), "PNG"),
    "LA": lambda: saved(see_through(COLOURS.convert("L")), "PNG"),
    "RGBA, WebP": lambda: saved(see_through(COLOURS), "WEBP", lossless=True, exact=True),
    "16 bits": lambda: saved(Image.fromarray(GREYS), "PNG"),
    "CMYK": lambda: saved(COLOURS.convert("CMYK"), "JPEG", quality=95),
    "GIF of two frames": lambda: saved(COLOURS.quantize(16), "GIF", save_all=True, append_images=[COLOURS.quantize(8)]),
    "BMP": lambda: saved(COLOURS, "BMP"),
    "WebP of two frames": lambda: saved(COLOURS, "WEBP", lossless=True, save_all=True, append_images=[OTHER]),
    "PNG of two frames": lambda: saved(COLOURS, "PNG", save_all=True, append_images=[OTHER]),
    "with a colour profile": lambda: saved(COLOURS, "PNG", icc_profile=PROFILE),
    "with a broken colour profile": lambda: saved(COLOURS, "PNG", icc_profile=b"not a profile at all"),
    **{f"orientation {n}": lambda n=n: turned(n) for n in range(1, 9)},  # type: ignore[misc]
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("window", [None, (20000.0, 30000.0)])
def test_training_and_serving_see_the_same_bytes(kind: str, window: tuple[float, float] | None, tmp_path: Path) -> None:
    data = FILES[kind]()
    (tmp_path / "file").write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of the profile
        if window is not None and kind not in ("L", "16 bits"):
            with pytest.raises(ValueError, match="window is for greyscale"):
                read_image(tmp_path / "file", window)
            with pytest.raises(GatewayError, match="window is for greyscale"):
                decode_image(data, TRANSFORM, Settings(), "image", window)
            return
        trained = read_image(tmp_path / "file", window)
        square = TRANSFORM.model_copy(update={"size": trained.shape[0]}) if "orient" in kind else TRANSFORM
        served = decode_image(data, square, Settings(), "image", window).image
    expected = Image.fromarray(trained)
    if expected.size != served.size:
        expected = expected.resize(served.size, Image.Resampling.BICUBIC)
    assert np.array_equal(np.asarray(served), np.asarray(expected))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_is_trained_on_upright(orientation: int, tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(turned(orientation))
    sides = (SIDE // 2, SIDE) if orientation < 5 else (SIDE, SIDE // 2)
    assert read_image(tmp_path / "photo.jpg").shape[:2] == sides


def opened(data: bytes) -> Image.Image:
    """The file, not yet decoded."""
    return Image.open(io.BytesIO(data))


def test_sixteen_bits_are_seen_over_the_whole_range_of_the_type() -> None:
    ramp = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
    assert np.array_equal(np.asarray(seen(opened(saved(Image.fromarray(ramp), "PNG"))))[..., 0], np.rint(ramp / 257))
    for form, mode in (("TIFF", "I;16"), ("TIFF", "I;16B")):
        image = Image.fromarray(ramp.astype(">u2" if mode == "I;16B" else "<u2"))
        again = opened(saved(image, form))
        assert again.mode in WIDE_GREYS
        assert np.array_equal(np.asarray(seen(again))[..., 0], np.rint(ramp / 257))


def test_an_x_ray_of_twelve_bits_is_not_white_and_a_window_shows_all_of_it() -> None:
    ramp = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    data = saved(Image.fromarray(ramp), "PNG")
    assert np.asarray(seen(opened(data))).max() == 16
    through = np.asarray(seen(opened(data), (2047.5, 4095)))[..., 0]
    assert np.array_equal(through, np.rint(255.0 * ramp / 4095))
    narrow = np.asarray(seen(opened(data), (1000, 200)))[..., 0]
    assert (narrow[ramp <= 900] == 0).all()
    assert (narrow[ramp >= 1100] == 255).all()
    assert len(np.unique(narrow)) == 201


def test_what_is_transparent_is_white() -> None:
    image = Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    image.putpixel((1, 0), (10, 20, 30, 255))
    assert np.asarray(seen(opened(saved(image, "PNG")))).tolist() == [[[255, 255, 255], [10, 20, 30]]]


def test_numbers_without_a_range_need_a_window() -> None:
    for values in (np.array([[-5, 70000]], np.int32), np.array([[0.0, 3.5]], np.float32)):
        data = saved(Image.fromarray(values), "TIFF")
        with pytest.raises(UnfaithfulError, match=r"has 32-bit values, .* to .*: they need a window"):
            seen(opened(data))
        low, high = float(values.min()), float(values.max())
        assert np.asarray(seen(opened(data), ((low + high) / 2, high - low)))[..., 0].tolist() == [[0, 255]]
    broken = saved(Image.fromarray(np.array([[0.0, np.nan]], np.float32)), "TIFF")
    with pytest.raises(UnfaithfulError, match="not finite"):
        seen(opened(broken), (0, 1))


def test_other_windows_of_one_file_are_other_pictures_to_the_caches() -> None:
    data = FILES["16 bits"]()
    digests = {
        decode_image(data, TRANSFORM, Settings(), "image", window).digest for window in (None, (1.0, 2.0), (2.0, 2.0))
    }
    assert len(digests) == 3


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
def test_of_an_animation_the_first_frame_is_seen(form: str) -> None:
    lossless = {} if form == "PNG" else {"lossless": True}
    image = opened(saved(COLOURS, form, save_all=True, append_images=[OTHER], **lossless))
    assert getattr(image, "n_frames", 1) == 2
    assert np.array_equal(np.asarray(seen(image)), np.asarray(COLOURS))


def test_a_colour_profile_changes_nothing() -> None:
    image = opened(FILES["with a colour profile"]())
    assert image.info["icc_profile"] == PROFILE
    assert np.array_equal(np.asarray(seen(image)), np.asarray(COLOURS))


def test_a_portable_greymap_is_seen_over_its_own_range() -> None:
    values = np.array([[0, 4095], [2048, 1000]], ">u2")
    image = opened(b"P5 2 2 4095\n" + values.tobytes())
    assert np.abs(np.asarray(seen(image))[..., 0] - values / 4095 * 255).max() <= 0.51
