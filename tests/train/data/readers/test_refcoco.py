"""RefCOCO: boxes on a grid over the image, and what is refused, a pickle above all."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.train.data.readers.instruction_trees import ref_tree
from train.data import score
from train.data.readers.refcoco import box_on_grid, read_refcoco
from train.data.score import read_box
from train.data.sources import Source


def source(path: Path, question: str | None = None) -> Source:
    return Source(format="refcoco", path=str(path), question=question)


def test_every_sentence_is_an_example(tmp_path: Path) -> None:
    turns = read_refcoco(source(ref_tree(tmp_path))).turns
    assert len(turns) == 22
    image = str(tmp_path / "train2014" / "COCO_train2014_000000000000.jpg")
    assert turns[:2] == [
        (image, "Give the box of: thing 0", "box 0 20 16 99", "train"),
        (image, "Give the box of: left of 0", "box 0 20 16 99", "train"),
    ]
    assert [turn.split for turn in turns[::2]] == ["train"] * 6 + ["val"] * 2 + ["test"] * 3
    assert score("ground", "box 0 20 16 99", turns[0].answer) == 1.0


def test_references_that_tell_everything_themselves(tmp_path: Path) -> None:
    ref_tree(tmp_path)
    (tmp_path / "instances.json").unlink()
    refs = json.loads((tmp_path / "refs.json").read_text())[:1]
    refs[0] |= {"width": 6, "height": 5, "bbox": [3, 0.5, 3, 4.5]}
    del refs[0]["split"], refs[0]["ann_id"]
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    turn = read_refcoco(source(tmp_path, "Where is {}?")).turns[0]
    assert turn == (
        str(tmp_path / "train2014" / "COCO_train2014_000000000000.jpg"),
        "Where is thing 0?",
        "box 50 10 99 99",
        "train",
    )


@pytest.mark.parametrize(
    ("bbox", "size", "box"),
    [
        ((0, 0, 640, 480), (640, 480), (0, 0, 99, 99)),
        ((320, 120, 320, 240), (640, 480), (50, 25, 99, 74)),
        ((-0.4, 479.0, 640.9, 1.5), (640, 480), (0, 99, 99, 99)),
        ((64, 48, 1, 1), (640, 480), (10, 10, 10, 10)),
    ],
)
def test_the_grid(
    bbox: tuple[float, float, float, float], size: tuple[float, float], box: tuple[int, int, int, int]
) -> None:
    assert box_on_grid(bbox, *size) == box
    assert read_box("box " + " ".join(map(str, box))) == box


class Trap:
    """Its pickle writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "refs(unc).p").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(ValueError, match=r"^data\.sources: .*refs\(unc\)\.p is a pickle.* expected is .* refs\.json"):
        read_refcoco(source(tmp_path))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sentences": "left"}, "entry 1 needs sentences, a list; found 'left'"),
        ({"sentences": [{}]}, "entry 1, sentences needs sent, a text; found None"),
        ({"split": "dev"}, "entry 1 has the split 'dev', allowed are train, val, test, testA, testB"),
        ({"image_id": 99}, "entry 1 has image_id 99, which instances.json does not list"),
        ({"image_id": [1]}, "entry 1 needs image_id, a whole number"),
        ({"ann_id": 99}, "entry 1 has ann_id 99, which instances.json does not list"),
        ({"bbox": [0, 0, 1]}, "entry 1 has the box [0.0, 0.0, 1.0], allowed is [x, y, width, height]"),
        ({"bbox": [0, 0, 0, 2]}, "in pixels, within the image of 6 × 5"),
        ({"bbox": [6, 0, 2, 2]}, "within the image of 6 × 5"),
        ({"bbox": [0, 0, "1", 2]}, "entry 1 needs bbox, a number; found '1'"),
    ],
)
def test_malformed_references(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    file = ref_tree(tmp_path) / "refs.json"
    refs = json.loads(file.read_text())
    refs[0] |= change
    file.write_text(json.dumps(refs))
    with pytest.raises(ValueError, match=r"^data\.sources: ") as refused:
        read_refcoco(source(tmp_path))
    assert sentence in str(refused.value)


def test_folders_without_references_or_with_two(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected in it is refs\.json, a list of"):
        read_refcoco(source(tmp_path))
    (tmp_path / "refs.json").write_text("{}")
    with pytest.raises(ValueError, match=r"refs\.json needs a list of references, found dict"):
        read_refcoco(source(tmp_path))
    (tmp_path / "refs(umd).json").write_text("[]")
    with pytest.raises(ValueError, match=r"found refs\(umd\)\.json and refs\.json in .*, which may hold one of them"):
        read_refcoco(source(tmp_path))
