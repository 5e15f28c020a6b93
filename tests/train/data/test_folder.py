"""A federation from a folder of one's own, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from train.data import DataConfig, build

QUESTION = {"question": "what is it?", "answer": "a cat"}


def write(folder: Path, split: str, *examples: dict[str, str] | str, picture: str | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for i, example in enumerate(examples):
        if isinstance(example, dict):
            name = picture or f"{split}-{i}.png"
            Image.fromarray(np.full((20, 30, 3), 10 * i, np.uint8)).save(folder / name)
            example = json.dumps({"image": name, **example})
        lines.append(example)
    (folder / f"{split}.jsonl").write_text("\n".join(lines))


def federation(path: Path) -> DataConfig:
    return DataConfig(name="folder", path=str(path))


def test_questions_of_two_clients(tmp_path: Path) -> None:
    for client in ("zoo", "farm"):
        write(tmp_path / client, "train", QUESTION, {**QUESTION, "task": "animals"})
        write(tmp_path / client, "test", QUESTION)
    clients = build(federation(tmp_path), 0)
    assert [client.id for client in clients] == ["farm", "zoo"]
    assert [(e.question, e.answer, e.task, e.label) for e in clients[0].train] == [
        ("what is it?", "a cat", "question", -1),
        ("what is it?", "a cat", "animals", -1),
    ]
    assert clients[0].train[1].image.shape == (20, 30, 3)
    assert clients[0].class_names == ()
    assert clients[0].val == ()
    assert len({e.uid for c in clients for e in (*c.train, *c.test)}) == 6


def test_classes(tmp_path: Path) -> None:
    write(tmp_path / "zoo", "train", {"class": "lynx"}, {"class": "bear"})
    write(tmp_path / "zoo", "test", {"class": "wolf"})
    (client,) = build(federation(tmp_path), 0)
    assert client.class_names == ("bear", "lynx", "wolf")
    assert [e.label for e in client.train] == [1, 0]
    assert client.test[0].task == "classify"


def test_a_window_shows_what_twelve_bits_hold_and_without_one_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "ward", "test", QUESTION)
    ramp = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    Image.fromarray(ramp).save(tmp_path / "ward" / "x-ray.png")
    line = {"image": "x-ray.png", **QUESTION}
    write(tmp_path / "ward", "train", json.dumps(line), json.dumps(line | {"window": [2047.5, 4095]}))
    (client,) = build(federation(tmp_path), 0)
    assert [e.image.max() for e in client.train] == [16, 255]
    assert len({e.digest for e in client.train}) == 2
    assert [r.message for r in caplog.records if "nearly black" in r.message] == [
        f"ward: 2 pictures are nearly black, {tmp_path}/ward/x-ray.png first; "
        'more than 8 bits may need a "window" in the line'
    ]


@pytest.mark.parametrize("window", [[1], [1, 0], ["a", 2], "1,2", [1, float("nan")]])
def test_what_is_no_window_is_named(tmp_path: Path, window: object) -> None:
    write(tmp_path / "ward", "test", QUESTION)
    write(tmp_path / "ward", "train", QUESTION | {"window": window})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"train.jsonl, line 1 has window .*; it is \[centre, width\], two numbers"):
        build(federation(tmp_path), 0)


def test_path_and_name_need_each_other(tmp_path: Path) -> None:
    for wrong in ({"name": "folder"}, {"name": "scenes", "path": str(tmp_path)}):
        with pytest.raises(ValueError, match="need each other"):
            DataConfig.model_validate(wrong)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([{"question": "?"}], "line 1 needs the texts image, question and answer, or image and class"),
        (["{"], "line 1 is not JSON"),
        (["[1]"], "line 1 needs the texts"),
        (['{"image": "gone.png", "class": "x"}'], "gone.png is missing or not an image"),
        ([QUESTION, {"class": "x"}], "mixes classes and questions"),
        ([], "is empty"),
    ],
)
def test_bad_examples_are_refused_in_a_sentence(
    tmp_path: Path, lines: list[dict[str, str] | str], sentence: str
) -> None:
    write(tmp_path / "zoo", "train", *lines)
    write(tmp_path / "zoo", "test", {"class": "x"} if "gone" in str(lines) else QUESTION)
    with pytest.raises(ValueError, match=r"^data\.path: ") as refused:
        build(federation(tmp_path), 0)
    assert sentence in str(refused.value)


def test_a_missing_folder_a_missing_split_and_a_picture_in_both(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.path: .*nowhere is not a folder"):
        build(federation(tmp_path / "nowhere"), 0)
    with pytest.raises(ValueError, match=r"no folder in .* holds a train\.jsonl"):
        build(federation(tmp_path), 0)
    write(tmp_path / "zoo", "train", QUESTION, picture="one.png")
    with pytest.raises(ValueError, match=r"test\.jsonl is missing"):
        build(federation(tmp_path), 0)
    write(tmp_path / "zoo", "test", QUESTION, picture="one.png")
    with pytest.raises(ValueError, match=r"one\.png is in train\.jsonl and in test\.jsonl"):
        build(federation(tmp_path), 0)


@pytest.mark.parametrize("name", ["global", "A B"])
def test_a_folder_that_cannot_name_a_client(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, "train", QUESTION)
    with pytest.raises(ValueError, match=r"global|client id"):
        build(federation(tmp_path), 0)
