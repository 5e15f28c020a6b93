"""An example holds its image, or reads it from the file each time."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from train.data import Example

PICTURE = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)


def example(source: np.ndarray | Path) -> Example:
    return Example(source, "", "cat", "classify", 0, "uid", "photo")


def test_an_array_is_the_image() -> None:
    held = example(PICTURE)
    assert held.image is PICTURE
    assert held.digest == hashlib.sha256(b"4 5 3\n" + PICTURE.tobytes()).hexdigest()


def test_the_digest_is_of_shape_and_content() -> None:
    others = PICTURE.reshape(5, 4, 3), PICTURE + 1, PICTURE.transpose(1, 0, 2)
    assert len({example(other).digest for other in (PICTURE, *others)}) == 4
    view = np.ascontiguousarray(PICTURE.transpose(2, 0, 1)).transpose(1, 2, 0)
    assert example(view).digest == example(PICTURE).digest


def test_a_file_is_read_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    kept = example(path)
    Image.fromarray(PICTURE).save(path)
    assert np.array_equal(kept.image, PICTURE)
    assert kept.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    Image.fromarray(PICTURE[..., 0]).save(path)
    assert np.array_equal(kept.image, PICTURE[..., :1].repeat(3, axis=2))


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    sentence = r"^data\.path: .*a\.png is missing or not an image$"
    with pytest.raises(ValueError, match=sentence):
        _ = example(path).image
    with pytest.raises(ValueError, match=sentence):
        _ = example(path).digest
    Image.fromarray(np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)).save(path)
    whole = path.read_bytes()
    for broken in (b"", b"text", whole[:2000], whole[:40] + bytes(40) + whole[80:]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=sentence):
            _ = example(path).image
