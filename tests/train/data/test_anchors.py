"""Anchors are public, the same by seed, and nobody's data; folders of pairs and COCO's captions; what is refused."""

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.train.data.readers.instruction_trees import captions_tree
from tests.train.data.readers.trees import picture
from tests.train.data.test_federation import everything, make
from train.data import score
from train.data.anchors import AnchorOptions, Family, anchors
from train.data.world.vocabulary import COLOURS, PUBLIC_STYLES, SHAPES

FAMILIES: tuple[Family, ...] = ("clip", "mllm")


def pairs_folder(root: Path, number: int = 4) -> AnchorOptions:
    for i in range(number):
        picture(root / f"{i}.png", i)
        (root / f"{i}.txt").write_text(f"picture number {i}\n")
    return AnchorOptions(source="folder", path=str(root), count=number)


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_by_seed_and_the_first_of_more(family: Family) -> None:
    few, more, other = (anchors(AnchorOptions(count=n), family, seed) for n, seed in ((8, 0), (90, 0), (8, 1)))
    told = [[(e.digest, e.question, e.answer, e.uid) for e in drawn] for drawn in (few, more, other)]
    assert told[0] == told[1][:8]
    assert not set(told[0]) & set(told[2])
    assert len({e.uid for e in more}) == len({e.digest for e in more}) == 90
    assert max(Counter(e.style for e in few).values()) == 3
    assert {e.style for e in few} == set(PUBLIC_STYLES)


def test_no_object_twice_before_all_were_shown() -> None:
    drawn = anchors(AnchorOptions(count=160), "clip", 0)
    every = sorted(f"a photo of a {colour} {shape}." for colour, shape in product(COLOURS, SHAPES))
    assert [sorted(e.answer for e in part) for part in (drawn[:80], drawn[80:])] == [every] * 2
    assert all((e.question, e.task, e.label, e.image.shape) == ("", "caption", -1, (64, 64, 3)) for e in drawn)


def test_questions_in_turn() -> None:
    drawn = anchors(AnchorOptions(), "mllm", 0)
    assert len(drawn) == 32
    assert {e.question for e in drawn} == {"Describe the image."}
    assert len({e.answer for e in drawn}) > 28
    drawn = anchors(AnchorOptions(tasks=("vqa", "ground", "relation"), count=18), "mllm", 0)
    assert [e.task for e in drawn] == ["vqa", "ground", "relation"] * 6
    assert set(Counter((e.task, e.style) for e in drawn).values()) == {2}
    assert all(score(e.task, e.answer, e.answer) for e in drawn)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_client_of_any_federation_has_one(family: Family) -> None:
    public: dict[str, Any] = {"styles": list(PUBLIC_STYLES), "train_per_client": 40}
    held = [e for name, seed in product(("style", "classify style"), (0, 1)) for e in everything(make(name, seed))]
    held += [e for name in ("style", "classify style") for e in everything(make(name, **public))]
    drawn = [e for seed in (0, 1) for e in anchors(AnchorOptions(count=64), family, seed)]
    assert not {e.digest for e in drawn} & {e.digest for e in held}
    assert not {e.uid for e in drawn} & {e.uid for e in held}


def test_a_folder_of_pairs(tmp_path: Path) -> None:
    options = pairs_folder(tmp_path)
    drawn = anchors(options, "clip", 0)
    assert {(e.source, e.question, e.answer) for e in drawn} == {
        (tmp_path / f"{i}.png", "", f"picture number {i}") for i in range(4)
    }
    fewer = options.model_copy(update={"count": 2})
    assert anchors(fewer, "clip", 0) == drawn[:2]
    assert {e.question for e in anchors(fewer, "mllm", 0)} == {"Describe the image."}
    assert len({anchors(fewer, "clip", seed) for seed in range(9)}) > 1


def test_cocos_captions(tmp_path: Path) -> None:
    options = AnchorOptions(source="coco", path=str(captions_tree(tmp_path)), count=6)
    drawn = anchors(options, "clip", 0)
    assert sorted(e.answer.split(" of ")[1] for e in drawn) == [f"{i}." for i in range(6)]
    assert all(int(Path(str(e.source)).stem) == int(e.answer.split(" of ")[1][:-1]) for e in drawn)
    assert anchors(options, "clip", 0) == drawn


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"source": "folder"}, "path: found None with source 'folder'; path and 'folder' or 'coco' need each other"),
        ({"path": "x"}, "path: found 'x' with source 'embedded'; path and"),
        ({"source": "web", "path": "x"}, "'embedded', 'folder' or 'coco'"),
        ({"count": 0}, "greater than or equal to 1"),
        ({"count": 1025}, "less than or equal to 1024"),
        ({"tasks": []}, "at least 1 item"),
        ({"tasks": ["classify"]}, r"tasks: found \['classify'\] with source 'embedded', allowed are tasks that ask"),
        ({"source": "coco", "path": "x", "tasks": ["vqa"]}, r"tasks: found \['vqa'\] with source 'coco'"),
        ({"number": 3}, "Extra inputs"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        AnchorOptions.model_validate(settings)


def refusal(options: AnchorOptions) -> str:
    with pytest.raises(ValueError, match=r"^anchors\.(path|count): found|is missing|needs") as refused:
        anchors(options, "clip", 0)
    return str(refused.value)


def test_what_lies_under_the_path_must_fit(tmp_path: Path) -> None:
    options = pairs_folder(tmp_path / "pairs")
    assert "which is no folder" in refusal(options.model_copy(update={"path": str(tmp_path / "nowhere")}))
    assert refusal(options.model_copy(update={"count": 5})).startswith("anchors.count: found 5, at most 4 are in")
    (tmp_path / "pairs" / "1.txt").write_text(" ")
    assert refusal(options).endswith("1.png without its text, expected in 1.txt beside it")
    (tmp_path / "pairs" / "1.txt").write_text("a text")
    (tmp_path / "pairs" / "1.png").write_text("no image")
    assert refusal(options).endswith("1.png is missing or not an image")
    coco = AnchorOptions(source="coco", path=str(tmp_path / "coco"), count=1)
    (tmp_path / "coco").mkdir()
    assert refusal(coco).endswith("expected in it is a file captions_train*.json")
    file = captions_tree(tmp_path / "coco") / "annotations" / "captions_train2017.json"
    file.write_text(json.dumps({"images": []}))
    assert refusal(coco).endswith("needs annotations, a list; found None")
