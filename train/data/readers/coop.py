"""Caltech101, DTD, Flowers102, Food101 and OxfordPets in CoOp's folders, with CoOp's splits (Zhou et al. 2022).

<root>/caltech-101/101_ObjectCategories/…   <root>/caltech-101/split_zhou_Caltech101.json   and so on; a split is
{"train": [["airplanes/image_0001.jpg", 0, "airplane"], …], "val": […], "test": […]}, paths from the image folder
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from train.data.examples import SPLITS
from train.data.readers.pictures import ImageSet, Picture, find_folder, spoken


@dataclass(frozen=True)
class Layout:
    folder: str
    images: str
    split: str


LAYOUTS: Final = {
    "caltech101": Layout("caltech-101", "101_ObjectCategories", "split_zhou_Caltech101.json"),
    "dtd": Layout("dtd", "images", "split_zhou_DescribableTextures.json"),
    "flowers102": Layout("oxford_flowers", "jpg", "split_zhou_OxfordFlowers.json"),
    "food101": Layout("food-101", "images", "split_zhou_Food101.json"),
    "oxford_pets": Layout("oxford_pets", "images", "split_zhou_OxfordPets.json"),
}
"""From CoOp's DATASETS.md."""


def read_coop(name: str, root: Path) -> ImageSet:
    """The data set as its split file says. ValueError with one sentence where something is missing or amiss."""
    layout = LAYOUTS[name]
    folder = find_folder(root, (layout.folder,), layout.images)
    path = folder / layout.split
    if not path.is_file():
        raise ValueError(f"data.path: found {folder}, expected in it is {layout.split}, one of CoOp's split files")
    split = _load(path)
    names = _class_names(path, [row for part in SPLITS for row in split[part]])
    index = {label: i for i, label in enumerate(names)}
    train, val, test = (
        tuple(Picture(folder / layout.images / file, file, index[label]) for file, label, _ in split[part])
        for part in SPLITS
    )
    return ImageSet(folder, tuple(names.values()), train, val, test, domains=(name,))


def _load(path: Path) -> dict[str, list[tuple[str, int, str]]]:
    try:
        split = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"data.path: {path} is not JSON ({error})") from None
    if not isinstance(split, dict) or not all(isinstance(split.get(part), list) for part in SPLITS):
        raise ValueError(f"data.path: {path} needs the lists train, val and test")
    seen: set[str] = set()
    for part in SPLITS:
        for row in split[part]:
            if not _is_row(row):
                raise ValueError(f"data.path: {path} holds {row!r}, allowed is [path, label, class name]")
            if row[0] in seen:
                raise ValueError(f"data.path: {path} names {row[0]} twice; an image is in one split, once")
            seen.add(row[0])
    return split


def _is_row(row: Any) -> bool:
    return isinstance(row, list) and [type(value) for value in row] == [str, int, str]


def _class_names(path: Path, rows: list[tuple[str, int, str]]) -> dict[int, str]:
    """Class name by label, in the order of the labels."""
    names: dict[int, str] = {}
    for _, label, name in rows:
        if names.setdefault(label, spoken(name)) != spoken(name):
            raise ValueError(f"data.path: {path} calls label {label} both {names[label]!r} and {spoken(name)!r}")
    if len(set(names.values())) < len(names):
        raise ValueError(f"data.path: {path} gives two labels one class name")
    return dict(sorted(names.items()))
