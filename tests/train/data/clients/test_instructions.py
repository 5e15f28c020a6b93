"""A federation of instruction data: who gets which images, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from adapters_store.paths import PROJECT_ROOT
from tests.train.data.readers.instruction_trees import captions_tree, llava_tree, ref_tree, vqa_tree
from train.data import ClientData, DataConfig, Example, build
from train.methods.pilot import PilotOptions
from train.run.config import RunConfig

SIZES = {"train_per_client": 1000, "val_per_client": 1000, "test_per_client": 1000}


def federation(*sources: dict[str, Any], **settings: Any) -> DataConfig:
    return DataConfig.model_validate({"name": "instructions", "sources": sources, **SIZES, **settings})


def files(examples: tuple[Example, ...]) -> set[Path]:
    return {example.source for example in examples if isinstance(example.source, Path)}


def parts(clients: list[ClientData]) -> list[set[Path]]:
    return [files(part) for client in clients for part in (client.train, client.val, client.test)]


@pytest.fixture
def four(tmp_path: Path) -> tuple[dict[str, Any], ...]:
    return (
        {"format": "llava_instruct", "path": str(llava_tree(tmp_path / "llava", first=100)), "clients": 2},
        {"format": "coco_captions", "path": str(captions_tree(tmp_path / "coco", first=200))},
        {"format": "vqav2", "path": str(vqa_tree(tmp_path / "vqa", first=300)), "clients": 2},
        {"format": "refcoco", "path": str(ref_tree(tmp_path / "refcoco", first=400))},
    )


def test_each_source_has_clients_of_its_own_with_one_task(four: tuple[dict[str, Any], ...]) -> None:
    clients = build(federation(*four), 0)
    assert [client.id for client in clients] == [f"client-{i:02d}" for i in range(6)]
    tasks = [{e.task for e in (*c.train, *c.val, *c.test)} for c in clients]
    assert tasks == [{"instruct"}, {"instruct"}, {"caption"}, {"vqa"}, {"vqa"}, {"ground"}]
    assert all(client.class_names == () and client.train and client.test for client in clients)
    assert clients[0].note.endswith("llava; 1 records without image left out")
    assert clients[0].train[0].image.shape == (5, 6, 3)
    examples = [example for c in clients for part in (c.train, c.val, c.test) for example in part]
    assert len({example.uid for example in examples}) == len(examples) == 20 + 18 + 18 + 22


def test_no_image_is_at_two_clients_or_in_two_splits(four: tuple[dict[str, Any], ...]) -> None:
    found = parts(build(federation(*four), 0))
    assert len(set.union(*found)) == sum(map(len, found)) == 10 + 9 + 9 + 11


def test_nor_where_two_sources_share_a_folder_of_images(tmp_path: Path) -> None:
    root = llava_tree(tmp_path / "llava")
    for old in sorted((root / "train2017").iterdir()):
        old.rename(old.with_name(f"scan-{old.name}"))
    file = root / "llava_instruct_150k.json"
    file.write_text(file.read_text().replace('"0000', '"scan-0000'))
    (tmp_path / "link").symlink_to(root)
    source = {"format": "llava_instruct", "path": str(file)}
    found = parts(build(federation(source, {**source, "images": str(tmp_path / "link"), "task": "scans"}), 0))
    assert len(set.union(*found)) == sum(map(len, found)) == 10
    assert [len(part) for part in found] == [4, 0, 1] * 2


def test_nor_where_cocos_years_name_an_image_differently(tmp_path: Path) -> None:
    config = federation(
        {"format": "llava_instruct", "path": str(llava_tree(tmp_path / "llava", images=12))},
        {"format": "refcoco", "path": str(ref_tree(tmp_path / "refcoco", {"train": 4, "test": 4}))},
    )
    instruct, ground = build(config, 0)
    numbers = [[path.stem[-12:] for path in files((*c.train, *c.val, *c.test))] for c in (instruct, ground)]
    assert len(numbers[0]) + len(numbers[1]) == len({*numbers[0], *numbers[1]}) == 12
    assert ground.train
    assert ground.test


def test_equal_seeds_give_equal_clients_and_others_do_not(four: tuple[dict[str, Any], ...]) -> None:
    config = federation(*four)
    assert build(config, 3) == build(config, 3)
    assert build(config, 3) != build(config, 4)


def test_own_splits_are_kept(four: tuple[dict[str, Any], ...]) -> None:
    caption, ground = build(federation(four[1], four[3]), 0)
    assert {path.parent.name for path in files(caption.test)} == {"val2017"}
    assert {path.parent.name for path in files(caption.train) | files(caption.val)} == {"train2017"}
    assert (len(files(caption.train)), len(files(caption.val)), len(files(caption.test))) == (5, 1, 3)
    numbers = [sorted(int(path.stem[-2:]) for path in files(part)) for part in (ground.train, ground.val, ground.test)]
    assert numbers == [list(range(6)), [6, 7], [8, 9, 10]]


def test_an_image_in_two_own_splits_is_in_the_last_alone(tmp_path: Path) -> None:
    root = ref_tree(tmp_path)
    refs = json.loads((root / "refs.json").read_text())
    refs += [{**refs[0], "split": "testA"}, {**refs[8], "split": "train"}]
    (root / "refs.json").write_text(json.dumps(refs))
    (client,) = build(federation({"format": "refcoco", "path": str(root)}), 0)
    assert sorted(int(path.stem[-2:]) for path in files(client.train)) == [1, 2, 3, 4, 5]
    assert sorted(int(path.stem[-2:]) for path in files(client.test)) == [0, 8, 9, 10]
    assert (len(client.train), len(client.test)) == (10, 8)


@pytest.mark.parametrize(
    ("limits", "sizes"), [((3, 2, 1), (3, 2, 1)), ((1000, 0, 1), (18, 0, 1)), ((1000, 1000, 1000), (14, 2, 4))]
)
def test_limits(tmp_path: Path, limits: tuple[int, int, int], sizes: tuple[int, int, int]) -> None:
    """Without splits of their own at most a fifth of the images is for test, a fifth of the rest for validation."""
    settings = dict(zip(SIZES, limits, strict=True))
    (client,) = build(federation({"format": "llava_instruct", "path": str(llava_tree(tmp_path))}, **settings), 0)
    assert (len(client.train), len(client.val), len(client.test)) == sizes


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "sources: found 0 with name 'instructions'"),
        ({"name": "scenes", "sources": [{"format": "vqav2", "path": "x"}]}, "sources: found 1 with name 'scenes'"),
        ({"sources": [{"format": "vqav2", "path": "x"}], "tasks": ["classify"]}, "have the tasks of their sources"),
        ({"sources": [{"format": "vqav3", "path": "x"}]}, "'llava_instruct', 'coco_captions', 'vqav2' or 'refcoco'"),
        ({"sources": [{"format": "vqav2", "path": "x", "clients": 0}]}, "greater than or equal to 1"),
        ({"sources": [{"format": "vqav2", "path": "x", "folder": "y"}]}, "Extra inputs"),
        ({"sources": [{"format": "vqav2", "path": "x", "task": "ocr"}]}, "task: found 'ocr' with format 'vqav2'"),
        ({"sources": [{"format": "llava_instruct", "path": "x", "task": "ground"}]}, "any but 'ground'"),
        ({"sources": [{"format": "refcoco", "path": "x", "question": "Where?"}]}, "lacks {}, the place of"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        DataConfig.model_validate({"name": "instructions", **settings})
    assert sentence in str(refused.value)


def test_too_many_clients_and_a_missing_image(tmp_path: Path) -> None:
    source = {"format": "llava_instruct", "path": str(llava_tree(tmp_path, images=3))}
    with pytest.raises(ValueError, match=r"^data\.sources\.0\.clients: found 4 for .* no training or no test image$"):
        build(federation({**source, "clients": 4}), 0)
    (tmp_path / "train2017" / "000000000002.jpg").unlink()
    with pytest.raises(ValueError, match=r"^data\.sources: .*000000000002\.jpg is missing, though the annotations"):
        build(federation(source), 0)


def test_the_configuration_of_pilots_paper_has_its_settings() -> None:
    path = PROJECT_ROOT / "train" / "configs" / "paper" / "pilot_llava15_7b.yaml"
    config = RunConfig.model_validate(yaml.safe_load(path.read_text()))
    assert isinstance(config.method, PilotOptions)
    assert (config.method.lora.rank, config.method.lora.alpha) == (64, 128)
    assert (config.federation.rounds, config.client.local_epochs, config.client.batch_size) == (3, 1, 16 * 2)
    assert (config.client.lr, config.client.lr * config.method.connector_rate) == (2e-5, 4e-5)
    weights = config.method.difference_weight, config.method.balance_weight, config.method.z_weight
    assert weights == (0.1, 0.1, 0.01)
    assert {source.asks for source in config.data.sources} == {"instruct", "caption", "vqa", "ground"}
