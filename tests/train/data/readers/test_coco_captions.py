"""COCO's captions, and what is refused."""

from pathlib import Path

import pytest

from tests.train.data.readers.instruction_trees import captions_tree, write_json
from train.data.readers.coco_captions import read_coco_captions
from train.data.sources import Source


def source(path: Path, question: str | None = None) -> Source:
    return Source(format="coco_captions", path=str(path), question=question)


def test_every_caption_is_an_example_and_val_is_for_test(tmp_path: Path) -> None:
    turns = read_coco_captions(source(captions_tree(tmp_path, train=2, val=1))).turns
    train, val = (str(tmp_path / f"{part}2017" / f"{i:012d}.jpg") for part, i in (("train", 1), ("val", 1000)))
    assert len(turns) == 6
    assert turns[3:5] == [
        (train, "Describe the image.", "Caption 1 of 1.", "train"),
        (val, "Describe the image.", "Caption 0 of 1000.", "test"),
    ]


def test_one_part_alone_is_for_training(tmp_path: Path) -> None:
    turns = read_coco_captions(source(captions_tree(tmp_path, train=0), "What is this?")).turns
    assert {(turn.question, turn.split) for turn in turns} == {("What is this?", "train")}


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^data\.sources: found .*, expected in it is a file captions_train\*\.json$"):
        read_coco_captions(source(tmp_path))
    captions_tree(tmp_path)
    file = tmp_path / "annotations" / "captions_train2017.json"
    write_json(
        file, {"images": [{"id": 0, "file_name": f"{0:012d}.jpg"}], "annotations": [{"image_id": 1, "caption": "A."}]}
    )
    with pytest.raises(
        ValueError, match=r"captions_train2017\.json, annotation 1 is of image 1, which images does not"
    ):
        read_coco_captions(source(tmp_path))
    write_json(file, {"images": [{"id": "0", "file_name": f"{0:012d}.jpg"}], "annotations": []})
    with pytest.raises(ValueError, match=r"image 1 needs id, a whole number; found '0'"):
        read_coco_captions(source(tmp_path))
    write_json(file, {"images": []})
    with pytest.raises(ValueError, match=r"captions_train2017\.json needs annotations, a list; found None"):
        read_coco_captions(source(tmp_path))
    write_json(tmp_path / "captions_train2014.json", {})
    with pytest.raises(ValueError, match=r"found annotations/captions_train2017\.json and captions_train2014\.json in"):
        read_coco_captions(source(tmp_path))
