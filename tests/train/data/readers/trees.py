"""Small folders in the layouts of the public data sets."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from train.data.readers.coop import LAYOUTS
from train.data.readers.domains import DOMAINS

FLAT = ("flowers102", "oxford_pets")
"""All images in one folder."""


def picture(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((5, 6, 3), (number % 256, number // 256, 7), np.uint8)).save(path)


def coop_tree(root: Path, name: str, classes: int = 4, sizes: tuple[int, int, int] = (6, 2, 3)) -> Path:
    """The data set's folder, with ``sizes`` images a class for training, validation and test."""
    layout = LAYOUTS[name]
    folder = root / layout.folder
    split: dict[str, list[tuple[str, int, str]]] = {"train": [], "val": [], "test": []}
    number = 0
    for c in range(classes):
        for part, size in zip(split, sizes, strict=True):
            for _ in range(size):
                number += 1
                file = f"image_{number:05d}.png" if name in FLAT else f"Kind_{c}/image_{number:04d}.png"
                picture(folder / layout.images / file, number)
                split[part].append((file, c, f"kind_{c}"))
    (folder / layout.split).write_text(json.dumps(split))
    return folder


def cifar_records(labels: list[tuple[int, ...]], first: int = 0) -> bytes:
    """Records of the binary version: image i is all (i % 256, i // 256, 200) but for row 1, column 2."""
    records = b""
    for i, label in enumerate(labels, first):
        image = np.empty((3, 32, 32), np.uint8)
        image[0], image[1], image[2] = i % 256, i // 256, 200
        image[0, 1, 2] = 255
        records += bytes(label) + image.tobytes()
    return records


def cifar10_tree(root: Path, each: int = 2) -> Path:
    """Five batches and a test batch, ``each`` images a class in every one."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    labels = [(c,) for c in range(10)] * each
    for b, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        (folder / f"{name}.bin").write_bytes(cifar_records(labels, b * len(labels)))
    (folder / "batches.meta.txt").write_text("\n".join(f"kind_{c}" for c in range(10)) + "\n\n")
    return folder


def cifar100_tree(root: Path, classes: int = 12, train: int = 10, test: int = 5) -> Path:
    """``classes`` classes, three of them to each super-class."""
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    labels = [(c // 3, c) for c in range(classes)]
    (folder / "train.bin").write_bytes(cifar_records(labels * train))
    (folder / "test.bin").write_bytes(cifar_records(labels * test, 1000))
    (folder / "fine_label_names.txt").write_text("".join(f"kind_{c}\n" for c in range(classes)))
    (folder / "coarse_label_names.txt").write_text("".join(f"super_{c}\n" for c in range(classes // 3)))
    return folder


def domain_tree(root: Path, name: str, classes: int = 3, each: int = 10) -> Path:
    """``each`` images a class in every domain."""
    folder = root / name
    for d, domain in enumerate(DOMAINS[name]):
        for c in range(classes):
            for i in range(each):
                picture(folder / domain / f"kind_{c}" / f"{i:03d}.png", (d * classes + c) * each + i)
    return folder
