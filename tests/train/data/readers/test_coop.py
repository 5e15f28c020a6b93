"""CoOp's folders and split files: what is read, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.data.readers.trees import coop_tree
from train.data.examples import read_image
from train.data.readers import read_image_set
from train.data.readers.coop import LAYOUTS


@pytest.mark.parametrize("name", LAYOUTS)
def test_reads_the_split_as_it_is(tmp_path: Path, name: str) -> None:
    folder = coop_tree(tmp_path, name)
    data = read_image_set(name, tmp_path, 0)
    assert data.class_names == ("kind 0", "kind 1", "kind 2", "kind 3")
    assert (len(data.train), len(data.val), len(data.test)) == (24, 8, 12)
    split = json.loads((folder / LAYOUTS[name].split).read_text())
    for part, pictures in (("train", data.train), ("val", data.val), ("test", data.test)):
        assert [(p.name, p.label) for p in pictures] == [(file, label) for file, label, _ in split[part]]
    assert isinstance(data.train[2].source, Path)
    assert np.array_equal(read_image(data.train[2].source)[0, 0], (3, 0, 7))
    assert (data.domains, data.coarse, data.folder) == ((name,), (), folder)


def test_the_root_may_be_the_data_set_itself(tmp_path: Path) -> None:
    folder = coop_tree(tmp_path, "dtd")
    assert read_image_set("dtd", folder, 0) == read_image_set("dtd", tmp_path, 0)


def test_labels_with_gaps_become_indices(tmp_path: Path) -> None:
    path = coop_tree(tmp_path, "dtd") / LAYOUTS["dtd"].split
    split = json.loads(path.read_text())
    path.write_text(json.dumps({part: [row for row in rows if row[1] in (1, 3)] for part, rows in split.items()}))
    data = read_image_set("dtd", tmp_path, 0)
    assert data.class_names == ("kind 1", "kind 3")
    assert {picture.label for picture in data.train} == {0, 1}


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^data\.path: .*nowhere is not a folder; it must hold the data set dtd$"):
        read_image_set("dtd", tmp_path / "nowhere", 0)
    with pytest.raises(ValueError, match=r"^data\.path: found .*, expected in it is dtd/images$"):
        read_image_set("dtd", tmp_path, 0)
    (coop_tree(tmp_path, "dtd") / LAYOUTS["dtd"].split).unlink()
    with pytest.raises(ValueError, match=r"^data\.path: found .*dtd, expected in it is split_zhou_Describable"):
        read_image_set("dtd", tmp_path, 0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("text", "is not JSON"),
        ({"train": [], "test": []}, "needs the lists train, val and test"),
        ({"train": [["a.png", "0", "cat"]]}, r"holds \['a.png', '0', 'cat'\], allowed is"),
        ({"train": [["a.png", 0, "cat"]], "test": [["a.png", 0, "cat"]]}, "names a.png twice"),
        ({"train": [["a.png", 0, "cat"]], "test": [["b.png", 0, "dog"]]}, "calls label 0 both 'cat' and 'dog'"),
        ({"train": [["a.png", 0, "a_cat"]], "test": [["b.png", 1, "a cat"]]}, "two labels one class name"),
    ],
)
def test_bad_split_files_are_refused(tmp_path: Path, change: Any, sentence: str) -> None:
    path = coop_tree(tmp_path, "dtd") / LAYOUTS["dtd"].split
    whole = change if "val" not in change and len(change) == 2 and change["train"] == [] else {"val": [], "test": []}
    path.write_text("{" if change == "text" else json.dumps(whole | change))
    with pytest.raises(ValueError, match=sentence):
        read_image_set("dtd", tmp_path, 0)
