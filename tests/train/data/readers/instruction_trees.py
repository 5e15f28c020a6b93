"""Small folders in the layouts of the instruction data sets."""

import json
from pathlib import Path
from typing import Any

from tests.train.data.readers.trees import picture


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def llava_tree(root: Path, images: int = 10, turns: int = 2, first: int = 0) -> Path:
    """``images`` records with ``turns`` pairs each, the image named in the first; and one record without image."""
    records: list[dict[str, Any]] = [{"id": "text", "conversations": said("What is 1 + 1?", "Two.")}]
    for i in range(first, first + images):
        name = f"{i:012d}.jpg"
        picture(root / "train2017" / name, i)
        pairs = [
            said(f"<image>\nQuestion {t} of {i}?" if t == 0 else f"Question {t} of {i}?", f"Answer {t} of {i}.")
            for t in range(turns)
        ]
        records.append({"id": str(i), "image": name, "conversations": [turn for pair in pairs for turn in pair]})
    write_json(root / "llava_instruct_150k.json", records)
    return root


def said(question: str, answer: str) -> list[dict[str, str]]:
    return [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]


def captions_tree(root: Path, train: int = 6, val: int = 3, captions: int = 2, first: int = 0) -> Path:
    """COCO 2017 with ``captions`` captions an image; a part of 0 images is not written."""
    for part, size, start in (("train", train, first), ("val", val, first + 1000)):
        ids = range(start, start + size)
        if not size:
            continue
        for i in ids:
            picture(root / f"{part}2017" / f"{i:012d}.jpg", i)
        write_json(
            root / "annotations" / f"captions_{part}2017.json",
            {
                "info": {},
                "images": [{"id": i, "file_name": f"{i:012d}.jpg"} for i in ids],
                "annotations": [
                    {"id": 10 * i + c, "image_id": i, "caption": f"Caption {c} of {i}. "}
                    for i in ids
                    for c in range(captions)
                ],
            },
        )
    return root


def vqa_tree(root: Path, train: int = 6, val: int = 3, questions: int = 2, first: int = 0) -> Path:
    """VQAv2 with ``questions`` questions an image."""
    for part, size, start in (("train", train, first), ("val", val, first + 1000)):
        subset, ids = f"{part}2014", range(start, start + size)
        asked = [
            {"image_id": i, "question_id": 1000 * i + q, "question": f"Question {q} of {i}?"}
            for i in ids
            for q in range(questions)
        ]
        answered = [
            {
                "question_id": q["question_id"],
                "image_id": q["image_id"],
                "answer_type": "other",
                "question_type": "none of the above",
                "multiple_choice_answer": f"answer {q['question_id']}",
                "answers": [{"answer": "net", "answer_confidence": "yes", "answer_id": a} for a in range(10)],
            }
            for q in reversed(asked)
        ]
        write_json(root / f"v2_OpenEnded_mscoco_{subset}_questions.json", {"questions": asked, "data_subtype": subset})
        write_json(root / f"v2_mscoco_{subset}_annotations.json", {"annotations": answered})
        for i in ids:
            picture(root / subset / f"COCO_{subset}_{i:012d}.jpg", i)
    return root


def ref_tree(root: Path, splits: dict[str, int] | None = None, first: int = 0) -> Path:
    """RefCOCO with one object and two sentences an image of 6 × 5 pixels: the first column's lower four rows."""
    refs, images, annotations = [], [], []
    names = [
        split for split, size in (splits or {"train": 6, "val": 2, "testA": 2, "testB": 1}).items() for _ in range(size)
    ]
    for i, split in enumerate(names, first):
        name = f"COCO_train2014_{i:012d}.jpg"
        picture(root / "train2014" / name, i)
        images.append({"id": i, "file_name": name, "width": 6, "height": 5})
        annotations.append({"id": 100 + i, "image_id": i, "bbox": [0, 1, 1, 4], "segmentation": [[0, 1, 1, 1]]})
        refs.append(
            {
                "ref_id": 500 + i,
                "ann_id": 100 + i,
                "image_id": i,
                "file_name": f"COCO_train2014_{i:012d}_{100 + i}.jpg",
                "split": split,
                "sentences": [{"sent": f"thing {i}", "raw": f"Thing {i}!"}, {"raw": f"left of {i}"}],
            }
        )
    write_json(root / "refs.json", refs)
    write_json(root / "instances.json", {"images": images, "annotations": annotations})
    return root
