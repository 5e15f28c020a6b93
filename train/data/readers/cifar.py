"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009): the binary version, or folders train/<class>/*.png and test/<class>/*.png.

An image of the binary version is 1 byte of label (CIFAR-100: 2, coarse then fine), then 3 × 1024 bytes of red, green
and blue, row by row. The files are mapped, not read: an image is in memory only while it is looked at.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from train.data.readers.pictures import ImageSet, Picture, class_folders, spoken

EDGE: Final = 32
PIXELS: Final = 3 * EDGE * EDGE


@dataclass(frozen=True)
class Form:
    """The files of one of the two data sets."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str
    """File of the class names, a line each."""
    label_bytes: int
    """The last of them is the class, one before it the super-class."""
    pickled: str
    """The folder of the Python version, which is not read."""


FORMS: Final = {
    "cifar10": Form(
        "cifar-10-batches-bin",
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        ("test_batch.bin",),
        "batches.meta.txt",
        1,
        "cifar-10-batches-py",
    ),
    "cifar100": Form("cifar-100-binary", ("train.bin",), ("test.bin",), "fine_label_names.txt", 2, "cifar-100-python"),
}


def read_cifar(name: str, root: Path) -> ImageSet:
    """The data set, with super-classes where it is CIFAR-100's binary version; it has no validation split."""
    form = FORMS[name]
    for folder in (root / form.folder, root / name, root):
        if (folder / form.train[0]).is_file():
            return _binary(name, folder)
        if (folder / "train").is_dir():
            return _folders(name, folder)
    for folder in (root / form.pickled, root):
        if (folder / Path(form.train[0]).stem).is_file():
            raise ValueError(
                f"data.path: found {folder} with Python pickles, which are not loaded; make the binary version with"
                f" `python -m train.data convert-cifar {folder} {root / form.folder}`"
            )
    raise ValueError(f"data.path: found {root}, expected in it is {form.folder}/{form.train[0]} or train/<class>/")


def _binary(name: str, folder: Path) -> ImageSet:
    form = FORMS[name]
    for file in (*form.train, *form.test, form.names):
        if not (folder / file).is_file():
            raise ValueError(f"data.path: found {folder}, expected in it is {file}")
    class_names = tuple(line for line in (folder / form.names).read_text().splitlines() if line.strip())
    parts = {file: _records(folder / file, form.label_bytes, len(class_names)) for file in (*form.train, *form.test)}
    train, test = (
        tuple(picture for file in files for picture in _pictures(file, parts[file], form.label_bytes))
        for files in (form.train, form.test)
    )
    coarse = np.zeros(len(class_names), dtype=int)
    for records in parts.values():
        coarse[records[:, form.label_bytes - 1]] = records[:, 0]
    supers = tuple(int(c) for c in coarse) if form.label_bytes == 2 else ()
    return ImageSet(folder, tuple(map(spoken, class_names)), train, (), test, (name,), supers)


def _records(path: Path, label_bytes: int, classes: int) -> NDArray[np.uint8]:
    """(images, label_bytes + 3072) the file, mapped."""
    size, width = path.stat().st_size, label_bytes + PIXELS
    if size == 0 or size % width:
        raise ValueError(f"data.path: {path} has {size} bytes, allowed are multiples of {width}")
    records: NDArray[np.uint8] = np.asarray(np.memmap(path, np.uint8, mode="r")).reshape(-1, width)
    highest = int(records[:, label_bytes - 1].max())
    if highest >= classes:
        raise ValueError(f"data.path: {path} holds label {highest}, the highest allowed is {classes - 1}")
    return records


def _pictures(file: str, records: NDArray[np.uint8], label_bytes: int) -> list[Picture]:
    images = records[:, label_bytes:].reshape(-1, 3, EDGE, EDGE).transpose(0, 2, 3, 1)
    labels = records[:, label_bytes - 1].tolist()
    return [Picture(image, f"{file}#{i}", label) for i, (image, label) in enumerate(zip(images, labels, strict=True))]


def _folders(name: str, folder: Path) -> ImageSet:
    found = {}
    for part in ("train", "test"):
        if not (folder / part).is_dir():
            raise ValueError(f"data.path: found {folder}, expected in it are train/<class>/ and test/<class>/")
        found[part] = class_folders(folder / part)
    if found["train"].keys() != found["test"].keys():
        odd = min(found["train"].keys() ^ found["test"].keys())
        raise ValueError(f"data.path: {folder} has class {odd!r} in only one of train and test")
    names = list(found["train"])
    train, test = (
        tuple(
            Picture(path, path.relative_to(folder).as_posix(), names.index(inner))
            for inner, paths in found[part].items()
            for path in paths
        )
        for part in ("train", "test")
    )
    return ImageSet(folder, tuple(map(spoken, names)), train, (), test, (name,))
