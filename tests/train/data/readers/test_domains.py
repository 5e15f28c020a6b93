"""Sets of several domains: folders by domain, official lists, and a split that hangs on nothing else."""

from pathlib import Path

import pytest

from tests.train.data.readers.trees import domain_tree, picture
from train.data.readers import ImageSet, read_image_set
from train.data.readers.domains import DOMAINS


def names(data: ImageSet, part: str) -> set[str]:
    return {picture.name for picture in getattr(data, part)}


@pytest.mark.parametrize("name", DOMAINS)
def test_every_class_of_every_domain_is_split(tmp_path: Path, name: str) -> None:
    domain_tree(tmp_path, name)
    data = read_image_set(name, tmp_path, 0)
    assert data.class_names == ("kind 0", "kind 1", "kind 2")
    assert data.domains == DOMAINS[name]
    for part, size in (("train", 8), ("test", 2)):
        found = [(p.domain, p.label) for p in getattr(data, part)]
        assert all(found.count((d, c)) == size for d in range(len(data.domains)) for c in range(3))
    assert not names(data, "train") & names(data, "test")
    assert data.val == ()
    assert all(p.name.split("/")[:2] == [data.domains[p.domain], f"kind_{p.label}"] for p in data.train)


def test_the_split_is_by_seed_and_hangs_on_no_other_class(tmp_path: Path) -> None:
    folder = domain_tree(tmp_path, "office_caltech10")
    first = read_image_set("office_caltech10", tmp_path, 0)
    assert read_image_set("office_caltech10", folder, 0) == first
    assert names(read_image_set("office_caltech10", tmp_path, 1), "train") != names(first, "train")
    picture(folder / "dslr" / "kind_9" / "0.png", 0)
    more = read_image_set("office_caltech10", tmp_path, 0)
    assert names(more, "train") == names(first, "train") | {"dslr/kind_9/0.png"}
    assert names(more, "test") == names(first, "test")


def test_official_lists_are_taken_where_present(tmp_path: Path) -> None:
    folder = domain_tree(tmp_path, "domainnet")
    (folder / "real_train.txt").write_text("real/kind_0/003.png 0\nreal/kind_2/001.png 2\n")
    (folder / "real_test.txt").write_text("real/kind_2/000.png 2\n\n")
    data = read_image_set("domainnet", tmp_path, 0)
    real = data.domains.index("real")
    assert [p.name for p in data.train if p.domain == real] == ["real/kind_0/003.png", "real/kind_2/001.png"]
    assert [(p.name, p.label) for p in data.test if p.domain == real] == [("real/kind_2/000.png", 2)]
    assert len(data.train) == 2 + 5 * 24


@pytest.mark.parametrize(("images", "lists"), [(".", "."), (".", "splits"), ("images", "splits")])
def test_the_lists_of_pacs(tmp_path: Path, images: str, lists: str) -> None:
    folder = domain_tree(tmp_path, "pacs", each=3)
    for place in (images, lists):
        (folder / place).mkdir(exist_ok=True)
    for domain in DOMAINS["pacs"]:
        (folder / domain).rename(folder / images / domain)
    for name, lines in {
        "photo_train": "photo/kind_0/000.png 1\nphoto/kind_1/001.png 2\n",
        "photo_crossval": "photo/kind_0/001.png 1\n",
        "photo_test": "not read",
        "sketch_train": "sketch/dog/n02103406_4068-1.png 1\nsketch/kind_0/001.png 1\n",
        "sketch_crossval": "sketch/kind_0/002.png 1\n",
    }.items():
        (folder / lists / f"{name}_kfold.txt").write_text(lines)
    data = read_image_set("pacs", tmp_path, 0)
    listed = {
        part: {name for name in names(data, part) if name.startswith(("photo", "sketch"))} for part in ("train", "test")
    }
    assert listed["train"] == {"photo/kind_0/000.png", "photo/kind_1/001.png", "sketch/kind_0/001.png"}
    assert listed["test"] == {"photo/kind_0/001.png", "sketch/kind_0/002.png"}
    assert all(Path(str(picture.source)).is_file() for picture in (*data.train, *data.test))


def test_a_domains_folder_may_have_an_underscore(tmp_path: Path) -> None:
    folder = domain_tree(tmp_path, "office_home", each=4)
    first = read_image_set("office_home", tmp_path, 0)
    (folder / "Real World").rename(folder / "Real_World")
    again = read_image_set("office_home", tmp_path, 0)
    assert names(again, "train") == names(first, "train")
    assert all(Path(str(picture.source)).is_file() for picture in again.train)
    assert "Real World/kind_0/000.png" in names(again, "train") | names(again, "test")


@pytest.mark.parametrize(
    ("train", "test", "sentence"),
    [
        ("real/kind_0/003.png 0\n", None, "expected in it is real_test.txt, since the other list is there"),
        ("real/kind_0/003.png 0\n", "real/kind_0/003.png 0\n", "is in both lists of real"),
        ("clipart/kind_0/003.png 0\n", "", r"real_train\.txt, line 1 needs real/<class>/<image>"),
        ("\nreal/../003.png 0\n", "", "line 2 needs real"),
    ],
)
def test_bad_lists_are_refused(tmp_path: Path, train: str, test: str | None, sentence: str) -> None:
    folder = domain_tree(tmp_path, "domainnet", each=1)
    (folder / "real_train.txt").write_text(train)
    if test is not None:
        (folder / "real_test.txt").write_text(test)
    with pytest.raises(ValueError, match=sentence):
        read_image_set("domainnet", tmp_path, 0)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^data\.path: found .*, expected in it is domainnet/clipart$"):
        read_image_set("domainnet", tmp_path, 0)
    (tmp_path / "clipart").mkdir()
    with pytest.raises(ValueError, match="expected in it are the folders clipart, infograph, painting, quickdraw"):
        read_image_set("domainnet", tmp_path, 0)
    for domain in DOMAINS["domainnet"]:
        (tmp_path / domain).mkdir(exist_ok=True)
    with pytest.raises(ValueError, match=r"found .*clipart, expected in it are folders of images, one a class"):
        read_image_set("domainnet", tmp_path, 0)
