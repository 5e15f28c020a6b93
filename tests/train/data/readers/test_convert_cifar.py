"""The converter: bytes in, the same bytes out; a pickle that wants anything else is refused, and nothing of it runs."""

import os
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from train.data.readers import read_image_set
from train.data.readers.convert_cifar import convert_cifar

PIXELS = np.random.default_rng(0).integers(256, size=(7, 3072), dtype=np.uint8)


def python_version(root: Path, protocol: int = 2) -> Path:
    """CIFAR-10's Python version, seven images a batch."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for b, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        data = np.asarray(PIXELS + np.uint8(b), order="F" if b % 2 else "C")
        batch = {"data": data, "labels": [b, 1, 2, 3, 4, 5, 9], "filenames": ["a.png"] * 7}
        (folder / name).write_bytes(pickle.dumps(batch, protocol))
    meta = {"label_names": [f"kind_{c}" for c in range(10)], "num_vis": 3072}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol))
    return folder


def as_python_2_wrote_it(batch: dict[bytes, Any]) -> bytes:
    """A protocol 2 pickle whose text is byte strings and whose array is numpy.core's, as in the published files."""

    def text(value: bytes) -> bytes:
        return b"T" + len(value).to_bytes(4, "little") + value

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little")

    content = b"\x80\x02}("
    for key, value in batch.items():
        content += text(key)
        if isinstance(value, np.ndarray):
            content += b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b")
            content += b"\x87R(" + number(1) + number(value.shape[0]) + number(value.shape[1]) + b"\x86"
            content += b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R(" + number(3) + text(b"|")
            content += b"NNN" + number(-1 % 2**31) * 2 + number(0) + b"tb" + b"\x89" + text(value.tobytes()) + b"tb"
        else:
            content += b"](" + b"".join(number(v) if isinstance(v, int) else text(v) for v in value) + b"e"
    return content + b"u."


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_converted_images_are_the_same(tmp_path: Path, protocol: int) -> None:
    convert_cifar(python_version(tmp_path, protocol), tmp_path / "out")
    data = read_image_set("cifar10", tmp_path / "out", 0)
    assert (len(data.train), len(data.test)) == (35, 7)
    assert [p.label for p in data.train[7:14]] == [1, 1, 2, 3, 4, 5, 9]
    source = data.train[8].source
    assert isinstance(source, np.ndarray)
    assert np.array_equal(source, (PIXELS[1] + np.uint8(1)).reshape(3, 32, 32).transpose(1, 2, 0))
    assert data.class_names[3] == "kind 3"


def test_cifar100_as_published(tmp_path: Path) -> None:
    source = tmp_path / "cifar-100-python"
    source.mkdir()
    for name in ("train", "test"):
        batch = {b"data": PIXELS, b"fine_labels": [0, 1, 2, 3, 4, 5, 6], b"coarse_labels": [0, 0, 0, 1, 1, 1, 2]}
        (source / name).write_bytes(as_python_2_wrote_it(batch))
    pickletools.dis((source / "train").read_bytes(), out=open(os.devnull, "w"))  # noqa: SIM115 - a well-formed pickle
    meta = {b"fine_label_names": [b"f%d" % c for c in range(7)], b"coarse_label_names": [b"s0", b"s1", b"s2"]}
    (source / "meta").write_bytes(as_python_2_wrote_it(meta))
    convert_cifar(source, tmp_path / "cifar-100-binary")
    data = read_image_set("cifar100", tmp_path, 0)
    assert data.class_names == tuple(f"f{c}" for c in range(7))
    assert data.coarse == (0, 0, 0, 1, 1, 1, 2)
    source_image = data.test[6].source
    assert isinstance(source_image, np.ndarray)
    assert np.array_equal(source_image, PIXELS[6].reshape(3, 32, 32).transpose(1, 2, 0))


class Calls:
    """Pickled as a call of something with something."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("where", ["data", "labels", "more"])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_malicious_pickle_is_refused_and_does_nothing(tmp_path: Path, where: str, protocol: int) -> None:
    folder = python_version(tmp_path)
    sprung = tmp_path / "sprung"
    for function, arguments in ((os.system, (f"touch {sprung}",)), (os.mkdir, (str(sprung),)), (eval, ("1",))):
        batch = {"data": PIXELS, "labels": [0] * 7} | {where: Calls(function, *arguments)}
        (folder / "data_batch_2").write_bytes(pickle.dumps(batch, protocol))
        with pytest.raises(ValueError, match=r"^IN: .*data_batch_2 is refused as a pickle of arrays: it asks for "):
            convert_cifar(folder, tmp_path / "out")
    assert not sprung.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        ({"data": PIXELS.astype(np.float64), "labels": [0] * 7}, "images are not bytes"),
        ({"data": PIXELS[:, :-1], "labels": [0] * 7}, "shape"),
        ({"data": PIXELS, "labels": [0] * 6}, "refused"),
        ({"data": PIXELS, "labels": [300] * 7}, "refused"),
        ({"data": [1, 2], "labels": [0] * 7}, "refused"),
        ({"data": np.array([None]), "labels": [0]}, "refused"),
        ({"data": PIXELS}, "has no 'labels'"),
        ([1], "refused"),
        (b"no pickle", "refused"),
        (b"", "refused"),
    ],
)
def test_malformed_batches_are_refused(tmp_path: Path, batch: Any, sentence: str) -> None:
    folder = python_version(tmp_path)
    content = batch if isinstance(batch, bytes) else pickle.dumps(batch, 2)
    (folder / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match=rf"^IN: .*test_batch.*{sentence}"):
        convert_cifar(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command(tmp_path: Path) -> None:
    folder = python_version(tmp_path)

    def run(*arguments: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "train.data", "convert-cifar", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    done = run(folder, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "batches.meta.txt, data_batch_1.bin" in done.stdout
    for refused, sentence in (
        (run(folder, tmp_path / "out"), "already there"),
        (run(tmp_path / "out", tmp_path / "new"), "expected in it is batches.meta (CIFAR-10) or meta (CIFAR-100)"),
    ):
        assert (refused.returncode, len(refused.stderr.strip().splitlines())) == (2, 1)
        assert sentence in refused.stderr
