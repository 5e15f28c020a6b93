"""COCO's captions (Chen et al. 2015): every caption of an image is an example of its own.

<path>/annotations/captions_train2017.json, captions_val2017.json (or 2014)   <path>/train2017/…, val2017/…
{"images": [{"id": 9, "file_name": "000000000009.jpg"}, …], "annotations": [{"image_id": 9, "caption": "…"}, …]}
"""

from pathlib import Path

from adapters_store.paths import resolve
from train.data.readers.instruction import (
    Instruction,
    Instructions,
    coco_folders,
    find_images,
    find_splits,
    get,
    image_file,
    read_json,
)
from train.data.sources import Source


def read_coco_captions(source: Source) -> Instructions:
    """The source's turns, train and val as train and test. ValueError with one sentence where something is amiss."""
    root = resolve(source.path)
    files = find_splits(root, "captions_{}*.json", ("annotations", "."))
    return Instructions([turn for split, file in files for turn in _turns(source, root, file, split)])


def _turns(source: Source, root: Path, file: Path, split: str) -> list[Instruction]:
    held = read_json(file)
    images = get(held, "images", list, f"{file}")
    subset = file.stem.removeprefix("captions_")
    names = {}
    folder = None
    for number, image in enumerate(images, 1):
        where = f"{file}, image {number}"
        name = get(image, "file_name", str, where)
        folder = folder or find_images(source, root, coco_folders(subset), name)
        names[get(image, "id", int, where)] = image_file(folder, name)
    turns = []
    question = source.put("")
    for number, annotation in enumerate(get(held, "annotations", list, f"{file}"), 1):
        where = f"{file}, annotation {number}"
        image_id = get(annotation, "image_id", int, where)
        if image_id not in names:
            raise ValueError(f"data.sources: {where} is of image {image_id}, which images does not list")
        turns.append(Instruction(names[image_id], question, get(annotation, "caption", str, where).strip(), split))
    return turns
