"""Few-shot splits: drawn once, saved, read again, and refused where they no longer fit."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.train.data.readers.trees import coop_tree, domain_tree
from train.data.clients.few_shot import few_shot
from train.data.readers import ImageSet, Picture, read_image_set

SAVED = Path("split_fewshot") / "shot_3-seed_1.json"


def names(pictures: list[Picture]) -> list[str]:
    return [picture.name for picture in pictures]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageSet:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    coop_tree(tmp_path, "dtd")
    return read_image_set("dtd", tmp_path, 0)


def test_so_many_of_each_class_and_the_rest(data: ImageSet) -> None:
    chosen, rest = few_shot(data, 3, 1)
    assert Counter(p.label for p in chosen) == dict.fromkeys(range(4), 3)
    assert sorted(names(chosen) + names(rest)) == sorted(p.name for p in data.train)
    assert names(few_shot(data, 3, 2)[0]) != names(chosen)
    assert len(few_shot(data, 100, 1)[0]) == len(data.train)


def test_of_each_class_in_each_domain(tmp_path: Path) -> None:
    domain_tree(tmp_path, "office_caltech10")
    chosen, _ = few_shot(read_image_set("office_caltech10", tmp_path, 0), 3, 1)
    assert set(Counter((p.domain, p.label) for p in chosen).values()) == {3}
    assert len(chosen) == 4 * 3 * 3


def test_a_saved_split_is_read_not_drawn(data: ImageSet) -> None:
    first = names(few_shot(data, 3, 1)[0])
    path = data.folder / SAVED
    assert sorted(json.loads(path.read_text())["train"]) == sorted(first)
    assert [inner.name for inner in path.parent.iterdir()] == [SAVED.name]
    other = [p.name for p in data.train if p.name not in first][:5]
    path.write_text(json.dumps({"train": other}))
    assert names(few_shot(data, 3, 1)[0]) == other


def test_saved_in_the_cache_where_the_data_cannot_be_written(data: ImageSet, tmp_path: Path) -> None:
    (data.folder / "split_fewshot").write_text("a file where the folder would be")
    first = names(few_shot(data, 3, 1)[0])
    (path,) = (tmp_path / "cache" / "fedtailor" / "split_fewshot").glob("dtd-*/shot_3-seed_1.json")
    assert sorted(json.loads(path.read_text())["train"]) == sorted(first)
    path.write_text(json.dumps({"train": first[:2]}))
    assert names(few_shot(data, 3, 1)[0]) == first[:2]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "holds no list of training images; delete it to draw anew"),
        ("[]", "holds no list"),
        ('{"train": [["a"]], "more": 1}', "is not among the training images"),
        ('{"train": []}', "is not 3 images a class"),
        ('{"train": ["Kind_0/image_0001.png", "Kind_9/gone.png"]}', r"names Kind_9/gone\.png, which is not among"),
        ('{"train": ["Kind_0/image_0009.png"]}', r"names Kind_0/image_0009\.png, which is not among the training"),
        (json.dumps({"train": [f"Kind_0/image_000{i}.png" for i in range(1, 5)]}), "is not 3 images a class"),
    ],
)
def test_what_does_not_fit_is_refused(data: ImageSet, content: str, sentence: str) -> None:
    path = data.folder / SAVED
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"^few_shot: .*shot_3-seed_1\.json .*{sentence}"):
        few_shot(data, 3, 1)


def test_an_image_gone_from_the_tree_is_named(tmp_path: Path) -> None:
    folder = domain_tree(tmp_path, "office_caltech10")
    chosen, _ = few_shot(read_image_set("office_caltech10", tmp_path, 0), 3, 1)
    (folder / chosen[0].name).unlink()
    with pytest.raises(ValueError, match=r"^few_shot: .* is not among the training images; bring it back, or delete"):
        few_shot(read_image_set("office_caltech10", tmp_path, 0), 3, 1)
