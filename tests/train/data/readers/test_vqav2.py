"""VQAv2, and what is refused."""

import json
from pathlib import Path

import pytest

from tests.train.data.readers.instruction_trees import vqa_tree, write_json
from train.data.readers.vqav2 import read_vqav2
from train.data.sources import Source


def source(path: Path, question: str | None = None) -> Source:
    return Source(format="vqav2", path=str(path), question=question)


def test_each_question_has_the_answer_of_its_own_number(tmp_path: Path) -> None:
    turns = read_vqav2(source(vqa_tree(tmp_path, train=2, val=1))).turns
    train = str(tmp_path / "train2014" / "COCO_train2014_000000000001.jpg")
    val = str(tmp_path / "val2014" / "COCO_val2014_000000001000.jpg")
    assert len(turns) == 6
    assert turns[3:5] == [
        (train, "Question 1 of 1?", "answer 1001", "train"),
        (val, "Question 0 of 1000?", "answer 1000000", "test"),
    ]


def test_the_folders_of_its_own_tools_and_a_wording(tmp_path: Path) -> None:
    vqa_tree(tmp_path, train=1, val=1)
    for part in ("train", "val"):
        for folder, name in (
            ("Questions", f"v2_OpenEnded_mscoco_{part}2014_questions.json"),
            ("Annotations", f"v2_mscoco_{part}2014_annotations.json"),
            ("Images/mscoco", f"{part}2014"),
        ):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / name).rename(tmp_path / folder / name)
    turns = read_vqav2(source(tmp_path, "{} Answer in one word.")).turns
    assert turns[0].question == "Question 0 of 0? Answer in one word."
    assert turns[0].image == str(tmp_path / "Images" / "mscoco" / "train2014" / "COCO_train2014_000000000000.jpg")


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected in it is a file v2_OpenEnded_mscoco_train\*_questions\.json"):
        read_vqav2(source(tmp_path))
    vqa_tree(tmp_path)
    file = tmp_path / "v2_mscoco_train2014_annotations.json"
    annotations = json.loads(file.read_text())["annotations"]
    write_json(file, {"annotations": annotations[1:]})
    with pytest.raises(ValueError, match=r"question 12 has question_id 5001, which the annotations do not answer"):
        read_vqav2(source(tmp_path))
    del annotations[0]["multiple_choice_answer"]
    write_json(file, {"annotations": annotations})
    with pytest.raises(
        ValueError, match=r"annotations\.json, annotation 1 needs multiple_choice_answer, a text; found"
    ):
        read_vqav2(source(tmp_path))
    file.unlink()
    with pytest.raises(
        ValueError, match=r"expected in it is v2_mscoco_train2014_annotations\.json beside the questions"
    ):
        read_vqav2(source(tmp_path))
