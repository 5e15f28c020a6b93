"""CIFAR: the binary version, the folders, and pickles only named, never loaded."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.train.data.readers.trees import cifar10_tree, cifar100_tree, cifar_records, picture
from train.data.readers import ImageSet, read_image_set


def image(data: ImageSet, index: int) -> np.ndarray:
    source = data.train[index].source
    assert isinstance(source, np.ndarray)
    return source


def test_cifar10_binary(tmp_path: Path) -> None:
    cifar10_tree(tmp_path)
    data = read_image_set("cifar10", tmp_path, 0)
    assert (len(data.train), len(data.val), len(data.test)) == (100, 0, 20)
    assert data.class_names[:2] == ("kind 0", "kind 1")
    assert len(data.class_names) == 10
    assert [p.label for p in data.train[:11]] == [*range(10), 0]
    assert [data.train[i].name for i in (0, 19, 20)] == [
        "data_batch_1.bin#0",
        "data_batch_1.bin#19",
        "data_batch_2.bin#0",
    ]
    assert image(data, 33).shape == (32, 32, 3)
    assert tuple(image(data, 33)[0, 0]) == (33, 0, 200)
    assert tuple(image(data, 33)[1, 2]) == (255, 0, 200)
    assert data.coarse == ()


def test_cifar100_binary_has_super_classes(tmp_path: Path) -> None:
    folder = cifar100_tree(tmp_path)
    data = read_image_set("cifar100", folder, 0)
    assert data.coarse == (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)
    assert (len(data.train), len(data.test)) == (120, 60)
    assert data.train[13].label == 1
    assert tuple(image(data, 13)[0, 0]) == (13, 0, 200)


def test_images_are_mapped_not_read(tmp_path: Path) -> None:
    cifar10_tree(tmp_path)
    data = read_image_set("cifar10", tmp_path, 0)
    assert not image(data, 0).flags.owndata
    assert not image(data, 0).flags.writeable


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_folders_of_images(tmp_path: Path, name: str) -> None:
    for part, size in (("train", 3), ("test", 2)):
        for c in ("dog", "big_cat"):
            for i in range(size):
                picture(tmp_path / name / part / c / f"{i}.png", i)
    data = read_image_set(name, tmp_path, 0)
    assert data.class_names == ("big cat", "dog")
    assert [(p.name, p.label) for p in data.test] == [
        ("test/big_cat/0.png", 0),
        ("test/big_cat/1.png", 0),
        ("test/dog/0.png", 1),
        ("test/dog/1.png", 1),
    ]
    assert (len(data.train), data.coarse) == (6, ())
    for i in range(2):
        (tmp_path / name / "test" / "dog" / f"{i}.png").unlink()
    with pytest.raises(ValueError, match="has class 'dog' in only one of train and test"):
        read_image_set(name, tmp_path, 0)


def test_what_is_missing_or_malformed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^data\.path: found .*, expected in it is cifar-10-batches-bin/data_batch_1"):
        read_image_set("cifar10", tmp_path, 0)
    folder = cifar10_tree(tmp_path)
    batch = folder / "data_batch_3.bin"
    whole = batch.read_bytes()
    for content, sentence in (
        (whole[:-1], "has 61459 bytes, allowed are multiples of 3073"),
        (b"", "has 0 bytes"),
        (cifar_records([(10,)]), "holds label 10, the highest allowed is 9"),
    ):
        batch.write_bytes(content)
        with pytest.raises(ValueError, match=sentence):
            read_image_set("cifar10", tmp_path, 0)
    batch.unlink()
    with pytest.raises(ValueError, match=r"expected in it is data_batch_3\.bin"):
        read_image_set("cifar10", tmp_path, 0)


@pytest.mark.parametrize(
    ("name", "folder", "file"),
    [("cifar10", "cifar-10-batches-py", "data_batch_1"), ("cifar100", "cifar-100-python", "train")],
)
def test_pickles_are_not_loaded(tmp_path: Path, name: str, folder: str, file: str) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "sprung",)  # type: ignore[return-value]

    (tmp_path / folder).mkdir()
    (tmp_path / folder / file).write_bytes(pickle.dumps(Trap()))
    for root in (tmp_path, tmp_path / folder):
        with pytest.raises(
            ValueError, match=r"Python pickles, .*python -m train\.data convert-cifar .* .*bin"
        ) as refused:
            read_image_set(name, root, 0)
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "sprung").exists()
