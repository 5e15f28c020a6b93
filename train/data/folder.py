"""A federation from a folder of one's own: one sub-folder a client, its examples as lines of JSON.

    <path>/<client>/train.jsonl, test.jsonl and, if wanted, val.jsonl, a line an example:
    {"image": "scan-1.png", "question": "is there a fracture?", "answer": "no"}      to answer questions
    {"image": "scan-1.png", "class": "fracture"}                                     to classify

Image paths are relative to the client's folder. ``task`` may name what the question is about; results are shown by it.
``"window": [centre, width]`` says what of a picture of greys is seen (adapters_store/pictures.py).
"""

import json
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adapters_store.paths import GLOBAL, check_client
from train.data.examples import SPLITS, ClientData, Example

log = logging.getLogger(__name__)

DARK = 16  # of 255: what 12 bits are of 16
QUESTION_KEYS, CLASS_KEYS = {"image", "question", "answer"}, {"image", "class"}


def build_folder(path: Path) -> list[ClientData]:
    """The clients found under ``path``, sorted by id. ValueError with one sentence where something is amiss."""
    if not path.is_dir():
        raise ValueError(f"data.path: {path} is not a folder; it must hold one folder a client, with train.jsonl in it")
    folders = sorted(folder for folder in path.iterdir() if (folder / "train.jsonl").is_file())
    if not folders:
        raise ValueError(f"data.path: no folder in {path} holds a train.jsonl; one folder a client is needed")
    for folder in folders:
        if check_client(folder.name) == GLOBAL:
            raise ValueError(f"data.path: {folder} cannot be a client's; 'global' is the name of the shared model")
    clients = [_client(folder) for folder in folders]
    if len({bool(client.class_names) for client in clients}) > 1:
        raise ValueError(
            f"data.path: in {path} some clients have classes and others questions; all must be of one kind"
        )
    return clients


def _client(folder: Path) -> ClientData:
    lines = {split: list(_lines(folder / f"{split}.jsonl", needed=split != "val")) for split in SPLITS}
    every = [line for split in SPLITS for line in lines[split]]
    names = tuple(sorted({line["class"] for line in every if "class" in line}))
    if names and not all("class" in line for line in every):
        raise ValueError(f"data.path: {folder} mixes classes and questions; all examples must be of one kind")
    shared = {line["image"] for line in lines["train"]} & {line["image"] for line in lines["test"]}
    if shared:
        raise ValueError(
            f"data.path: {folder}: {sorted(shared)[0]} is in train.jsonl and in test.jsonl; keep them apart"
        )
    train, val, test = (
        tuple(_example(folder, split, number, line, names) for number, line in enumerate(lines[split]))
        for split in SPLITS
    )
    _warn_of_darkness(folder.name, (*train, *val, *test))
    return ClientData(folder.name, train, val, test, names, note=f"{len(train)} examples of {folder}")


def _warn_of_darkness(client: str, examples: Sequence[Example]) -> None:
    """Twelve bits in a file of sixteen, as many X-rays have them, are nearly black without a window."""
    dark = [example.source for example in examples if example.image.max() <= DARK]  # which refuses a broken file, too
    if dark:
        log.warning(
            '%s: %d pictures are nearly black, %s first; more than 8 bits may need a "window" in the line',
            *(client, len(dark), dark[0]),
        )


def _lines(path: Path, *, needed: bool) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        if needed:
            raise ValueError(f"data.path: {path} is missing; every client needs train.jsonl and test.jsonl")
        return
    text = path.read_text().splitlines()
    if needed and not text:
        raise ValueError(f"data.path: {path} is empty; at least one example is needed")
    for number, line in enumerate(text, 1):
        try:
            example = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"data.path: {path}, line {number} is not JSON ({error.msg})") from None
        keys = example.keys() - {"task", "window"} if isinstance(example, dict) else set()
        if keys not in (QUESTION_KEYS, CLASS_KEYS) or not all(isinstance(example[key], str) for key in keys):
            raise ValueError(
                f"data.path: {path}, line {number} needs the texts image, question and answer, or image and class"
            )
        if not _is_window(example.get("window", [0, 1])):
            raise ValueError(
                f"data.path: {path}, line {number} has window {example['window']!r}; it is [centre, width], two numbers"
            )
        yield example


def _is_window(found: Any) -> bool:
    numbers = isinstance(found, list) and all(isinstance(number, int | float) for number in found)
    return numbers and len(found) == 2 and all(map(math.isfinite, found)) and found[1] > 0


def _example(folder: Path, split: str, number: int, line: dict[str, Any], names: tuple[str, ...]) -> Example:
    uid = f"{folder.name}-{split}-{number}"
    image, window = folder / line["image"], None
    if "window" in line:
        centre, width = line["window"]
        window = (float(centre), float(width))
    style = folder.name
    if names:
        return Example(image, "", line["class"], "classify", names.index(line["class"]), uid, style, window)
    return Example(image, line["question"], line["answer"], line.get("task", "question"), -1, uid, style, window)
