"""What every reader of instruction data returns, and how they find and read their files."""

import json
import os
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from adapters_store.paths import resolve
from train.data.sources import Source

T = TypeVar("T")
SPOKEN: Final[dict[type, str]] = {str: "a text", int: "a whole number", float: "a number", list: "a list"}


class Instruction(NamedTuple):
    """A question about an image, with its answer; of 440,000 in VQAv2, so small."""

    image: str
    """The image's file, absolute and without `..`: equal texts are equal files."""
    question: str
    answer: str
    split: str
    """Of SPLITS; all are `train` where the data have no split of their own."""


@dataclass(frozen=True)
class Instructions:
    """All that a source holds."""

    turns: list[Instruction]
    """In the order of the files."""
    note: str = ""
    """What was left out, for people."""


def read_json(path: Path, drop: frozenset[str] = frozenset()) -> Any:
    """What the file holds, without the keys ``drop``, which go as they are read and so never fill the memory."""

    def slim(record: dict[str, Any]) -> dict[str, Any]:
        for key in drop:
            record.pop(key, None)
        return record

    try:
        with path.open(encoding="utf-8") as file:
            return json.load(file, object_hook=slim if drop else None)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"data.sources: {path} is not JSON ({error})") from None


def get(record: Any, key: str, kind: type[T], where: str) -> T:
    """The value of a record's key; ValueError names ``where`` if there is none of this kind, or a blank text."""
    value = record.get(key) if isinstance(record, dict) else None
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (isinstance(value, str) and not value.strip()):
        raise ValueError(f"data.sources: {where} needs {key}, {SPOKEN[kind]}; found {reprlib.repr(value)}")
    return value


def find_splits(root: Path, pattern: str, folders: tuple[str, ...]) -> list[tuple[str, Path]]:
    """COCO's annotation files as (split, file): train is for training and val for test, since test has no answers.

    One of the two alone is all for training. ``pattern`` has `{}` where `train` or `val` stands in the file's name.
    """
    found = []
    for part in ("train", "val"):
        files = sorted({file for inner in folders for file in (root / inner).glob(pattern.format(part))})
        if len(files) > 1:
            listed = " and ".join(str(file.relative_to(root)) for file in files)
            raise ValueError(f"data.sources: found {listed} in {root}, which may hold one of them")
        found += files
    if not found:
        raise ValueError(f"data.sources: found {root}, expected in it is a file {pattern.format('train')}")
    return list(zip(("train", "test"), found, strict=False))


def find_images(source: Source, root: Path, usual: tuple[str, ...], first: str) -> Path:
    """The folder of a source's images: the first of the ``usual`` ones that holds the ``first`` image."""
    base = root if source.images is None else resolve(source.images)
    for folder in (base / inner for inner in usual):
        if (folder / first).is_file():
            return folder.resolve()
    raise ValueError(
        f"data.sources: found no {first} in {base}, looked for in {', '.join(usual)}; images may name another folder"
    )


def coco_folders(subset: str) -> tuple[str, ...]:
    """Where people keep the images of `train2014` and its like."""
    return (subset, f"images/{subset}", f"images/mscoco/{subset}", f"Images/mscoco/{subset}", "images", ".")


def image_file(folder: Path, name: str) -> str:
    """The image's file as ``Instruction`` has it."""
    return os.path.normpath(os.path.join(folder, name))  # text, since paths of all images would fill the memory
