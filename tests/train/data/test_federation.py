"""Federations: deterministic, disjoint, and what the configuration asked for."""

import re
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

from train.data import ClientData, DataConfig, Example, build, score
from train.data.world.handwriting import load_handwriting
from train.data.world.questions import TASKS, WORDINGS
from train.data.world.vocabulary import COLOURS, DIGITS, SHAPES

SMALL: dict[str, Any] = {"train_per_client": 8, "val_per_client": 4, "test_per_client": 6}
FEDERATIONS: dict[str, dict[str, Any]] = {
    "style": {"tasks": list(TASKS)},
    "task": {"partition": "task", "tasks": ["caption", "count", "ground"], "clients": 5},
    "task_style": {"partition": "task_style", "tasks": ["vqa", "position"], "styles": ["night", "pixel"]},
    "classify style": {"tasks": ["classify"], "colour": "one_per_client"},
    "classify pathological": {"tasks": ["classify"], "partition": "pathological", "classes_per_client": 20},
    "classify dirichlet": {"tasks": ["classify"], "partition": "dirichlet"},
    "digits pathological": {
        "name": "digits",
        "tasks": ["classify"],
        "partition": "pathological",
        "classes_per_client": 2,
    },
    "digits dirichlet": {"name": "digits", "tasks": ["digit"], "partition": "dirichlet"},
}


def make(name: str, seed: int = 0, **extra: Any) -> list[ClientData]:
    return build(DataConfig.model_validate(SMALL | FEDERATIONS[name] | extra), seed)


def everything(clients: list[ClientData]) -> list[Example]:
    return [example for client in clients for split in (client.train, client.val, client.test) for example in split]


def same(a: Example, b: Example) -> bool:
    return np.array_equal(a.image, b.image) and (a.question, a.answer, a.label, a.uid) == (
        *(b.question, b.answer),
        *(b.label, b.uid),
    )


@pytest.mark.parametrize("name", FEDERATIONS)
def test_deterministic_by_seed(name: str) -> None:
    first, again, other = make(name), make(name), make(name, seed=1)
    assert all(same(a, b) for a, b in zip(everything(first), everything(again), strict=True))
    pairs = list(zip(everything(first), everything(other), strict=False))
    assert not all(np.array_equal(a.image, b.image) for a, b in pairs)


@pytest.mark.parametrize("name", FEDERATIONS)
def test_splits_are_disjoint_and_well_formed(name: str) -> None:
    clients = make(name)
    examples = everything(clients)
    assert len({example.uid for example in examples}) == len(examples)
    assert len({example.image.tobytes() for example in examples}) == len(examples)
    assert [client.id for client in clients] == sorted(client.id for client in clients)
    for client in clients:
        assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", client.id)
        assert client.note
        assert len(client.test) == SMALL["test_per_client"]
    for example in examples:
        assert example.image.shape == (64, 64, 3)
        assert example.image.dtype == np.uint8
        assert score(example.task, example.answer, example.answer) == 1.0


@pytest.mark.parametrize("name", [name for name in FEDERATIONS if "tasks" in FEDERATIONS[name]])
def test_labels_index_the_class_names(name: str) -> None:
    for client in make(name):
        for example in (*client.train, *client.val, *client.test):
            if example.task == "classify":
                assert client.class_names[example.label] == example.answer
            else:
                assert (example.label, client.class_names) == (-1, ())


def test_partition_by_task_and_style() -> None:
    by_task = make("task")
    assert [{e.task for e in c.train} for c in by_task] == [{"caption"}, {"count"}, {"ground"}, {"caption"}, {"count"}]
    product = make("task_style")
    assert {(c.train[0].task, c.train[0].style) for c in product} == {
        (task, style) for task in ("vqa", "position") for style in ("night", "pixel")
    }
    mixed = make("style", train_per_client=16)
    assert [{e.style for e in c.train} for c in mixed] == [{"sketch"}, {"cartoon"}, {"night"}, {"inverted"}]
    assert all(Counter(e.task for e in c.train) == dict.fromkeys(TASKS, 2) for c in mixed)


def test_pathological_clients_share_no_class() -> None:
    for name in ("classify pathological", "digits pathological"):
        names = [n for client in make(name) for n in client.class_names]
        assert len(set(names)) == len(names)


def test_one_colour_a_client() -> None:
    clients = make("classify style")
    colours = [{name.split()[0] for name in client.class_names} for client in clients]
    assert all(len(own) == 1 for own in colours)
    assert len(set.union(*colours)) == len(clients)
    assert all({name.split()[1] for name in client.class_names} == set(SHAPES) for client in clients)


def test_dirichlet_digits_are_skewed_alike_in_training_and_test() -> None:
    clients = make("digits dirichlet", train_per_client=300, test_per_client=300, val_per_client=0)
    for client in clients:
        train, test = (
            np.array([sum(e.answer == d for e in s) / len(s) for d in DIGITS]) for s in (client.train, client.test)
        )
        assert np.abs(train - test).max() < 0.05
        assert train.max() > 0.2


def test_few_shot_is_exact() -> None:
    for name in ("classify style", "digits pathological"):
        for client in make(name, few_shot=3):
            assert Counter(e.label for e in client.train) == dict.fromkeys(range(len(client.class_names)), 3)


def test_a_style_left_out_is_the_same_for_equal_classes() -> None:
    settings = {"unseen_styles": {"classify": "paint"}, "unseen_per_client": 12, "few_shot": 1}
    alike = make("classify style", colour="mixed", classes_per_client=80, **settings)
    left_out = alike[0].unseen["style"]
    assert {(e.style, e.task, e.answer == alike[0].class_names[e.label]) for e in left_out} == {
        ("paint", "classify", True)
    }
    assert len({e.label for e in left_out}) == len({e.digest for e in left_out}) == 12
    assert all(all(map(same, client.unseen["style"], left_out)) for client in alike)
    own = make("classify style", **settings)
    every = [e for client in own for e in client.unseen["style"]]
    assert len({e.uid for e in every}) == len({e.digest for e in every}) == len(own) * 12
    assert all({e.answer for e in c.unseen["style"]} == set(c.class_names) for c in own)
    without = make("classify style", few_shot=1)
    assert all(map(same, everything(own), everything(without)))
    assert not any(client.unseen for client in without)


def test_tested_handwriting_is_never_trained_on() -> None:
    data = load_handwriting()
    rows = {
        split: [int(e.uid.split("-")[1]) for c in make("digits dirichlet") for e in getattr(c, split)]
        for split in ("train", "val", "test")
    }
    assert data.is_train[rows["train"] + rows["val"]].all()
    assert not data.is_train[rows["test"]].any()
    assert 0.59 < data.is_train.mean() < 0.61


def test_quick_enough() -> None:
    started = time.process_time()
    build(DataConfig(clients=6, tasks=("caption",), train_per_client=200, val_per_client=50, test_per_client=50), 3)
    assert time.process_time() - started < 6  # 1.3 s of one free core


def test_questions_use_the_first_wording() -> None:
    starts = [ways[0].split("{")[0] for ways in WORDINGS.values()]
    assert all(any(e.question.startswith(start) for start in starts) for e in everything(make("style")))
    assert len(COLOURS) == 8
