"""RefCOCO, RefCOCO+ and RefCOCOg (Kazemzadeh et al. 2014, Mao et al. 2016): the box of what an expression names.

<path>/refs.json        the list of `refs(unc).p` as JSON; the pickle itself is never read, since that could run code
    [{"ref_id": 1, "image_id": 9, "ann_id": 7, "split": "train", "sentences": [{"sent": "the red cup"}, …]}, …]
<path>/instances.json   not needed where every entry of refs.json has file_name, width, height and bbox itself
    {"images": [{"id": 9, "file_name": "…", "width": 640, "height": 480}], "annotations": [{"id": 7, "bbox": […]}]}
A bbox is [x, y, width, height] in pixels. Images lie in <path>/train2014 and so on.

A box is written as in train/data/world/questions.py, on a grid of ``GRID`` columns and rows laid over the whole image,
whatever its size and shape: "box 0 25 49 99" is the left half without the top quarter. Both ends are included, 0 to 99
from the top left: as fine as the two decimals of LLaVA-1.5's own grounding data. It is of the whole image where the
base's processor crops too: of an image that is not square the model then sees the centre, and boxes may reach beyond.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adapters_store.paths import resolve
from train.data.readers.instruction import (
    Instruction,
    Instructions,
    coco_folders,
    find_images,
    get,
    image_file,
    read_json,
)
from train.data.sources import Source
from train.data.world.questions import box_text

GRID: Final = 100
SPLIT_OF: Final = {"train": "train", "val": "val", "test": "test", "testA": "test", "testB": "test"}
OBJECT_SUFFIX: Final = re.compile(r"(COCO_[a-z]+\d+_\d{12})_\d+(\.\w+)")
"""The pickle's file_name ends with the object's number, which the image's file does not."""


@dataclass(frozen=True)
class Listed:
    """What instances.json tells, by id; nothing where it is not there."""

    images: dict[int, Any]
    annotations: dict[int, Any]


def read_refcoco(source: Source) -> Instructions:
    """The source's turns, one a sentence. ValueError with one sentence where something is amiss."""
    root = resolve(source.path)
    path = _refs(root)
    refs = read_json(path)
    if not isinstance(refs, list):
        raise ValueError(f"data.sources: {path} needs a list of references, found {type(refs).__name__}")
    listed = _listed(root / "instances.json")
    turns: list[Instruction] = []
    folder = None
    for number, ref in enumerate(refs, 1):
        where = f"{path}, entry {number}"
        sentences = [_sentence(sentence, where) for sentence in get(ref, "sentences", list, where)]
        image = _listed_or_own(listed.images, ref, "image_id", where)
        name = OBJECT_SUFFIX.sub(r"\1\2", get(image, "file_name", str, where))
        folder = folder or find_images(source, root, coco_folders("train2014"), name)
        file, answer, split = image_file(folder, name), _answer(listed, ref, image, where), _split(ref, where)
        turns += (Instruction(file, source.put(sentence), answer, split) for sentence in sentences)
    return Instructions(turns)


def box_on_grid(bbox: tuple[float, float, float, float], width: float, height: float) -> tuple[int, int, int, int]:
    """First and last column and row, 0 to 99, that a box [x, y, width, height] in pixels touches."""
    x, y, w, h = bbox
    edges = []
    for low, high, size in ((x, x + w, width), (y, y + h, height)):
        first = min(max(math.floor(GRID * low / size), 0), GRID - 1)
        edges.append((first, max(min(math.ceil(GRID * high / size), GRID) - 1, first)))
    (x0, x1), (y0, y1) = edges
    return x0, y0, x1, y1


def _refs(root: Path) -> Path:
    files = sorted(root.glob("refs*.json"))
    if len(files) == 1:
        return files[0]
    if files:
        listed = " and ".join(file.name for file in files)
        raise ValueError(f"data.sources: found {listed} in {root}, which may hold one of them")
    wanted = (
        'refs.json, a list of {"ref_id", "image_id", "ann_id" or "bbox", "split", "sentences": [{"sent"}]}, with'
        " instances.json beside it"
    )
    if pickles := sorted(root.glob("*.p")):
        raise ValueError(
            f"data.sources: {pickles[0]} is a pickle, which can run code as it is read and so is not; expected is the"
            f" same as JSON in {wanted}"
        )
    raise ValueError(f"data.sources: found {root}, expected in it is {wanted}")


def _listed(path: Path) -> Listed:
    if not path.is_file():
        return Listed({}, {})
    held = read_json(path, frozenset({"segmentation"}))
    images, annotations = (
        {get(entry, "id", int, f"{path}, {key}"): entry for entry in get(held, key, list, f"{path}")}
        for key in ("images", "annotations")
    )
    return Listed(images, annotations)


def _listed_or_own(listed: dict[int, Any], ref: Any, key: str, where: str) -> Any:
    """What instances.json tells of the entry's image or object; the entry itself where there is no such file."""
    if not listed or key not in ref:
        return ref
    number = get(ref, key, int, where)
    if number not in listed:
        raise ValueError(f"data.sources: {where} has {key} {number}, which instances.json does not list")
    return listed[number]


def _sentence(sentence: Any, where: str) -> str:
    key = "raw" if isinstance(sentence, dict) and "raw" in sentence and "sent" not in sentence else "sent"
    return get(sentence, key, str, f"{where}, sentences").strip()


def _split(ref: Any, where: str) -> str:
    named = get(ref, "split", str, where) if "split" in ref else "train"
    if named not in SPLIT_OF:
        raise ValueError(f"data.sources: {where} has the split {named!r}, allowed are {', '.join(SPLIT_OF)}")
    return SPLIT_OF[named]


def _answer(listed: Listed, ref: Any, image: Any, where: str) -> str:
    width, height = (get(image, side, float, where) for side in ("width", "height"))
    boxed = ref if "bbox" in ref else _listed_or_own(listed.annotations, ref, "ann_id", where)
    numbers = [get({"bbox": n}, "bbox", float, where) for n in get(boxed, "bbox", list, where)]
    if len(numbers) != 4 or not _overlaps(numbers, width, height):
        raise ValueError(
            f"data.sources: {where} has the box {numbers}, allowed is [x, y, width, height] in pixels, within the image"
            f" of {width:g} × {height:g}"
        )
    x, y, w, h = numbers
    return box_text(box_on_grid((x, y, w, h), width, height))


def _overlaps(box: list[float], width: float, height: float) -> bool:
    """Whether the box has an area, at least in part within the image: a pixel of slack is common in these data."""
    x, y, w, h = box
    return w > 0 and h > 0 and x + w > 0 and y + h > 0 and x < width and y < height
