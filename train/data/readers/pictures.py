"""What every reader of a public data set returns, and how readers find their files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff")


@dataclass(frozen=True)
class Picture:
    """One image of a data set."""

    source: NDArray[np.uint8] | Path
    """The image (height, width, 3), or its file."""
    name: str
    """Unique in the data set and the same on every machine: its path in there, or file and number."""
    label: int
    """Index into the set's class names."""
    domain: int = 0
    """Index into the set's domains."""


@dataclass(frozen=True)
class ImageSet:
    """A data set for classification, with its own split."""

    folder: Path
    """Where it lies; a few-shot split is saved in there."""
    class_names: tuple[str, ...]
    train: tuple[Picture, ...]
    val: tuple[Picture, ...]
    """Empty where the data set has no such split."""
    test: tuple[Picture, ...]
    domains: tuple[str, ...]
    """Names of the domains; a set of one kind of images has its own name here."""
    coarse: tuple[int, ...] = ()
    """Super-class of each class; empty where there are none."""
    unseen: tuple[Picture, ...] = ()
    """Of a domain that nobody is given, all images; ``domains`` has it no longer."""


def find_folder(root: Path, usual: tuple[str, ...], inside: str) -> Path:
    """The folder that holds ``inside``: ``root`` with one of the usual names, or ``root`` itself."""
    for folder in (*(root / name for name in usual), root):
        if (folder / inside).exists():
            return folder
    raise ValueError(f"data.path: found {root}, expected in it is {usual[0]}/{inside}")


def class_folders(folder: Path) -> dict[str, list[Path]]:
    """The images in each sub-folder, sorted; a sub-folder without images is left out."""
    found = {}
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        images = sorted(path for path in inner.iterdir() if path.suffix.lower() in SUFFIXES)
        if images:
            found[inner.name] = images
    if not found:
        raise ValueError(f"data.path: found {folder}, expected in it are folders of images, one a class")
    return found


def spoken(name: str) -> str:
    """A class name as a text encoder should see it: "wine_glass" is "wine glass"."""
    return name.replace("_", " ")
