"""VQAv2 (Goyal et al. 2017): questions about COCO's images, each with the answer most people gave.

<path>/v2_OpenEnded_mscoco_train2014_questions.json, v2_mscoco_train2014_annotations.json, and the same of val2014, in
<path> or in annotations, Questions, Annotations; images in <path>/train2014/COCO_train2014_000000000009.jpg and so on
{"questions": [{"question_id": 1, "image_id": 9, "question": "…?"}, …]}
{"annotations": [{"question_id": 1, "multiple_choice_answer": "net", "answers": [of ten people]}, …]}
"""

import sys
from pathlib import Path
from typing import Final

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

FOLDERS: Final = (".", "annotations", "Questions", "Annotations")
UNUSED: Final = frozenset({"answers", "question_type", "answer_type", "confidence"})
"""Most of the file; the ten answers alone would be gigabytes in memory."""


def read_vqav2(source: Source) -> Instructions:
    """The source's turns, train and val as train and test. ValueError with one sentence where something is amiss."""
    root = resolve(source.path)
    files = find_splits(root, "v2_OpenEnded_mscoco_{}*_questions.json", FOLDERS)
    return Instructions([turn for split, file in files for turn in _turns(source, root, file, split)])


def _turns(source: Source, root: Path, file: Path, split: str) -> list[Instruction]:
    subset = file.stem.removeprefix("v2_OpenEnded_mscoco_").removesuffix("_questions")
    answers = _answers(root, f"v2_mscoco_{subset}_annotations.json")
    turns = []
    files: dict[int, str] = {}  # one text an image, however many questions it has
    folder = None
    for number, record in enumerate(get(read_json(file), "questions", list, f"{file}"), 1):
        where = f"{file}, question {number}"
        image, question_id = get(record, "image_id", int, where), get(record, "question_id", int, where)
        if question_id not in answers:
            raise ValueError(
                f"data.sources: {where} has question_id {question_id}, which the annotations do not answer"
            )
        if image not in files:
            name = f"COCO_{subset}_{image:012d}.jpg"
            folder = folder or find_images(source, root, coco_folders(subset), name)
            files[image] = image_file(folder, name)
        question = source.put(get(record, "question", str, where).strip())
        turns.append(Instruction(files[image], question, answers[question_id], split))
    return turns


def _answers(root: Path, name: str) -> dict[int, str]:
    """The answer of each question."""
    for file in (root / inner / name for inner in FOLDERS):
        if file.is_file():
            break
    else:
        raise ValueError(f"data.sources: found {root}, expected in it is {name} beside the questions")
    answers = {}
    for number, record in enumerate(get(read_json(file, UNUSED), "annotations", list, f"{file}"), 1):
        where = f"{file}, annotation {number}"
        answer = get(record, "multiple_choice_answer", str, where).strip()
        answers[get(record, "question_id", int, where)] = sys.intern(answer)
    return answers
