"""LLaVA's instruction data (Liu et al. 2023): one JSON file, such as llava_instruct_150k.json, and its images.

    [{"id": "1", "image": "000000000009.jpg", "conversations": [{"from": "human", "value": "<image>\\nWhat is it?"},
                                                              {"from": "gpt", "value": "A plate."}, …]}, …]

Every human–gpt pair is an example of its own: earlier turns of a conversation are not given as its context, so a later
question that leans on them is asked without. Records without an image are left out and counted.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from adapters_store.paths import resolve
from train.data.readers.instruction import Instruction, Instructions, find_images, get, image_file, read_json
from train.data.sources import Source

PLACE: Final = "<image>"
USUAL: Final = (".", "images", "train2017", "coco/train2017", "images/train2017", "train2014")


def read_llava_instruct(source: Source) -> Instructions:
    """The source's turns. ValueError with one sentence that names file and record where one is malformed."""
    path = _file(resolve(source.path))
    records = read_json(path)
    if not isinstance(records, list):
        raise ValueError(f"data.sources: {path} needs a list of records, found {type(records).__name__}")
    turns: list[Instruction] = []
    folder, without = None, 0
    for number, record in enumerate(records, 1):
        where = f"{path}, record {number}"
        if isinstance(record, dict) and not record.get("image"):
            without += 1
            continue
        name = get(record, "image", str, where)
        folder = folder or find_images(source, path.parent, USUAL, name)
        image = image_file(folder, name)
        turns += (Instruction(image, source.put(q), a, "train") for q, a in _pairs(record, where))
    return Instructions(turns, f"{without} records without image left out" if without else "")


def _file(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.glob("*.json"))
    if len(files) != 1:
        listed = ", ".join(file.name for file in files) or "none"
        raise ValueError(f"data.sources: expected in {path} is one JSON file, found {listed}; path may name the file")
    return files[0]


def _pairs(record: Any, where: str) -> Iterator[tuple[str, str]]:
    """A conversation's questions and answers."""
    said = get(record, "conversations", list, where)
    spoken = [get(turn, "from", str, f"{where}, turn {t}") for t, turn in enumerate(said, 1)]
    if not spoken or spoken != ["human", "gpt"] * (len(spoken) // 2):
        raise ValueError(f"data.sources: {where} needs turns of human and gpt one after the other, found {spoken}")
    texts = [get(turn, "value", str, f"{where}, turn {t}") for t, turn in enumerate(said, 1)]
    for question, answer in zip(texts[::2], texts[1::2], strict=True):
        asked = question.replace(PLACE, "").strip()
        if not asked:
            raise ValueError(f"data.sources: {where} needs a question, found {question!r}")
        yield asked, answer.strip()
