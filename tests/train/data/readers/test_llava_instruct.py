"""LLaVA's instruction data: every pair is an example, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.train.data.readers.instruction_trees import llava_tree, said, write_json
from train.data.readers.llava_instruct import read_llava_instruct
from train.data.sources import Source


def source(path: Path, **settings: Any) -> Source:
    return Source(format="llava_instruct", path=str(path), **settings)


def test_every_pair_is_an_example_without_the_mark_of_the_image(tmp_path: Path) -> None:
    read = read_llava_instruct(source(llava_tree(tmp_path, images=2)))
    image = str(tmp_path / "train2017" / "000000000001.jpg")
    assert read.turns[2:] == [
        (image, "Question 0 of 1?", "Answer 0 of 1.", "train"),
        (image, "Question 1 of 1?", "Answer 1 of 1.", "train"),
    ]
    assert read.note == "1 records without image left out"


def test_the_file_itself_and_a_folder_of_images(tmp_path: Path) -> None:
    llava_tree(tmp_path / "data", images=1)
    (tmp_path / "data" / "train2017").rename(tmp_path / "pictures")
    write_json(tmp_path / "data" / "other.json", [])
    file = tmp_path / "data" / "llava_instruct_150k.json"
    asked = source(file, images=str(tmp_path / "pictures"), question="{} Be brief.")
    assert read_llava_instruct(asked).turns[0][:2] == (
        str(tmp_path / "pictures" / "000000000000.jpg"),
        "Question 0 of 0? Be brief.",
    )
    with pytest.raises(ValueError, match=r"is one JSON file, found llava_instruct_150k\.json, other\.json"):
        read_llava_instruct(source(tmp_path / "data"))
    with pytest.raises(ValueError, match=r"data\.sources: found no 000000000000\.jpg in .*data, looked for in \."):
        read_llava_instruct(source(file))


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"conversations": 3}, "record 2 needs conversations, a list; found 3"),
        ({"conversations": []}, "record 2 needs turns of human and gpt one after the other, found []"),
        ({"conversations": said("a?", "b")[:1]}, "record 2 needs turns of human and gpt"),
        ({"conversations": said("a?", "b")[::-1]}, "record 2 needs turns of human and gpt"),
        ({"conversations": said("<image>\n", "b")}, "record 2 needs a question"),
        ({"conversations": said("a?", " ")}, "record 2, turn 2 needs value, a text; found ' '"),
        ({"conversations": [{"from": "human", "value": 7}, {"from": "gpt"}]}, "record 2, turn 1 needs value, a text"),
        ({"image": ["a.jpg", "b.jpg"]}, "record 2 needs image, a text; found ['a.jpg', 'b.jpg']"),
        ("text", "record 2 needs image, a text; found None"),
    ],
)
def test_malformed_records_are_refused_by_file_and_number(tmp_path: Path, record: Any, sentence: str) -> None:
    file = llava_tree(tmp_path, images=1) / "llava_instruct_150k.json"
    records = json.loads(file.read_text())
    records[1] = {**records[1], **record} if isinstance(record, dict) else record
    file.write_text(json.dumps(records))
    with pytest.raises(ValueError, match=r"^data\.sources: ") as refused:
        read_llava_instruct(source(tmp_path))
    assert f"{file}, {sentence}" in str(refused.value)


@pytest.mark.parametrize(("content", "sentence"), [("{", "is not JSON"), ("{}", "needs a list of records, found dict")])
def test_files_that_are_none_of_these(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ValueError, match=sentence):
        read_llava_instruct(source(tmp_path))
