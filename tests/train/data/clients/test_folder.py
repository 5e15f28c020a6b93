"""A federation from a folder of one's own, and what is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from train.data import DataConfig, build

QUESTION = {"question": "what is it?", "answer": "a cat"}


def pixels(of: str) -> np.ndarray:
    """A picture of its own for every text."""
    return np.random.default_rng(list(of.encode())).integers(0, 256, (20, 30, 3), np.uint8)


def write(folder: Path, split: str, *examples: dict[str, str] | str, picture: str | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for i, example in enumerate(examples):
        if isinstance(example, dict):
            name = picture or f"{split}-{i}.png"
            Image.fromarray(pixels(f"{folder.name} {name}")).save(folder / name)
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
        f"ward: nearly black are 1 pictures, {tmp_path}/ward/x-ray.png first; "
        'more than 8 bits may need a "window" in the line'
    ]


@pytest.mark.parametrize("window", [[1], [1, 0], [10**400, 1], [True, 1], ["a", 2], "1,2", [1, float("nan")]])
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
        (["[1]"], "line 1 is no object {…} of JSON"),
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
    with pytest.raises(ValueError, match=r"test\.jsonl, line 1 has the same picture as .*train\.jsonl, line 1; keep"):
        build(federation(tmp_path), 0)


@pytest.mark.parametrize(
    ("name", "sentence"), [("Global", "name of the shared"), ("base", "reserved"), ("—", "client id")]
)
def test_a_folder_that_cannot_name_a_client(tmp_path: Path, name: str, sentence: str) -> None:
    write(tmp_path / name, "train", QUESTION)
    write(tmp_path / name, "test", QUESTION)
    with pytest.raises(ValueError, match=sentence):
        build(federation(tmp_path), 0)


def test_display_names_become_ids(tmp_path: Path) -> None:
    for name in ("St Mary Ward", "Zürich (Süd)"):
        write(tmp_path / name, "train", QUESTION)
        write(tmp_path / name, "test", QUESTION)
    assert [client.id for client in build(federation(tmp_path), 0)] == ["st-mary-ward", "zurich-sud"]
    write(tmp_path / "st-mary-ward", "train", QUESTION)
    write(tmp_path / "st-mary-ward", "test", QUESTION)
    with pytest.raises(ValueError, match=r"St Mary Ward and .*st-mary-ward would both be client 'st-mary-ward'"):
        build(federation(tmp_path), 0)


def test_lines_as_people_save_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ward = tmp_path / "ward"
    write(ward, "test", QUESTION)
    write(ward, "train", QUESTION, QUESTION)
    odd = {"question": "what\u2028is it?", "answer": "a cat", "patient": 7}
    lines = [json.dumps({"image": f"train-{i}.png", **odd}, ensure_ascii=False) for i in range(2)]
    (ward / "train.jsonl").write_bytes(("\ufeff" + "\r\n".join(lines) + "\r\n\r\n  \n").encode())
    (client,) = build(federation(tmp_path), 0)
    assert [e.question for e in client.train] == ["what\u2028is it?"] * 2
    assert [r.message for r in caplog.records] == ["ward: not read in its lines: patient"]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ('{"image": "ä.png"}'.encode("utf-16"), r"train\.jsonl is UTF-16: save it as UTF-8"),
        ('{}\n{"image": "ä.png"}'.encode("latin-1"), r"train\.jsonl, line 2 is not UTF-8, but Latin-1 perhaps"),
    ],
)
def test_other_encodings_are_named(tmp_path: Path, data: bytes, sentence: str) -> None:
    write(tmp_path / "ward", "test", QUESTION)
    (tmp_path / "ward" / "train.jsonl").write_bytes(data)
    with pytest.raises(ValueError, match=sentence):
        build(federation(tmp_path), 0)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    broken = [json.dumps({"image": f"gone-{i}.png", **QUESTION}) for i in range(30)]
    for client in ("a", "b"):
        write(tmp_path / client, "test", QUESTION)
        write(tmp_path / client, "train", "{", QUESTION | {"window": 3}, *broken)  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"^data\.path: ") as refused:
        build(federation(tmp_path), 0)
    told = str(refused.value)
    assert "a/train.jsonl, line 1 is not JSON" in told
    assert "a/train.jsonl, line 2 has window 3" in told
    assert f"a/train.jsonl, line 3: {tmp_path}/a/gone-0.png is missing or not an image" in told
    assert told.endswith("; and 44 more")


def test_a_folder_without_training_lines_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "zoo", "train", QUESTION)
    write(tmp_path / "zoo", "test", QUESTION)
    (tmp_path / "farm").mkdir()
    (tmp_path / ".cache").mkdir()
    assert [client.id for client in build(federation(tmp_path), 0)] == ["zoo"]
    assert [r.message for r in caplog.records] == [f"{tmp_path}/farm holds no train.jsonl and is no client"]


@pytest.mark.parametrize("way", ["up", "absolute", "link"])
def test_a_line_names_no_other_clients_picture(tmp_path: Path, way: str) -> None:
    for client in ("ann", "bob"):
        write(tmp_path / client, "train", QUESTION)
        write(tmp_path / client, "test", QUESTION)
    theirs = tmp_path / "bob" / "train-0.png"
    (tmp_path / "ann" / "link.png").symlink_to(theirs)
    name = {"up": "../bob/train-0.png", "absolute": str(theirs), "link": "link.png"}[way]
    write(tmp_path / "ann", "train", json.dumps({"image": name, **QUESTION}))
    with pytest.raises(ValueError, match=r"ann/train\.jsonl, line 1 names .*: only files in .*/ann are read"):
        build(federation(tmp_path), 0)


def test_what_clients_share_is_an_option(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    Image.fromarray(pixels("theirs")).save(shared / "public.png")
    for name in ("public.png", "../shared/public.png", str(shared / "public.png")):
        write(tmp_path / "ann", "test", QUESTION)
        write(tmp_path / "ann", "train", json.dumps({"image": name, **QUESTION}))
        (client,) = build(DataConfig(name="folder", path=str(tmp_path), shared=str(shared)), 0)
        assert np.array_equal(client.train[0].image, pixels("theirs"))
    with pytest.raises(ValueError, match=r"data\.shared: .*nowhere is not a folder"):
        build(DataConfig(name="folder", path=str(tmp_path), shared=str(tmp_path / "nowhere")), 0)
    with pytest.raises(ValueError, match="shared: found 'x' with name 'scenes'"):
        DataConfig(shared="x")


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_test_picture_was_not_seen_under_another_name(tmp_path: Path, split: str) -> None:
    for each in ("train", "val", "test"):
        write(tmp_path / "ann", each, QUESTION)
    shutil.copy(tmp_path / "ann" / "test-0.png", tmp_path / "ann" / f"{split}-0.png")
    with pytest.raises(ValueError, match=rf"test\.jsonl, line 1 has the same picture as .*{split}\.jsonl, line 1"):
        build(federation(tmp_path), 0)
