"""Federations of tasks with styles of their own: who is about what, and examples of what nobody trains."""

from typing import Any

import numpy as np
import pytest

from train.data import ClientData, DataConfig, Example, build
from train.data.clients.digits import hand_out
from train.data.world.handwriting import load_handwriting

TAUGHT: dict[str, Any] = {
    "clients": 6,
    "partition": "task_style",
    "task_styles": {"caption": ["sketch", "night"], "ground": ["paint"], "digit": ["handwriting", "cartoon"]},
    "unseen_styles": {"caption": "pixel", "digit": "night"},
    "unseen_tasks": ["position", "relation"],
    "unseen_per_client": 5,
    "train_per_client": 8,
    "val_per_client": 4,
    "test_per_client": 6,
}


def make(seed: int = 0, **settings: Any) -> list[ClientData]:
    return build(DataConfig.model_validate(TAUGHT | settings), seed)


def splits(client: ClientData) -> list[tuple[Example, ...]]:
    return [client.train, client.val, client.test, *client.unseen.values()]


def test_clients_take_turns_task_by_task() -> None:
    clients = make(clients=7)
    assert [client.note for client in clients] == [
        *("sketch: caption", "night: caption", "paint: ground", "handwriting: digit", "cartoon: digit"),
        *("sketch: caption", "night: caption"),
    ]
    for client in clients:
        style, task = client.note.split(": ")
        every = (*client.train, *client.val, *client.test)
        assert [len(client.train), len(client.val), len(client.test)] == [8, 4, 6]
        assert {(example.style, example.task) for example in every} == {(style, task)}


def test_what_is_unseen_is_trained_by_nobody() -> None:
    clients = make()
    trained = {(example.task, example.style) for client in clients for example in client.train}
    for client in clients:
        (own,) = {(example.task, example.style) for example in client.train}
        for example in client.unseen.get("style", ()):
            assert example.task == own[0]
            assert (example.task, example.style) not in trained
        for example in client.unseen.get("task", ()):
            assert example.style == own[1]
            assert example.task not in {task for task, _ in trained}
    assert [sorted(client.unseen) for client in clients] == [
        *(["style", "task"], ["style", "task"], ["task"], ["style"], ["style", "task"], ["style", "task"])
    ]
    assert [len(part) for part in clients[0].unseen.values()] == [5, 5]
    assert {example.task for example in clients[0].unseen["task"]} == {"position", "relation"}


def test_deterministic_and_nothing_twice() -> None:
    first, again, other = ([e for c in make(seed) for part in splits(c) for e in part] for seed in (0, 0, 1))
    keys = [[(e.uid, e.digest, e.question, e.answer) for e in examples] for examples in (first, again, other)]
    assert keys[0] == keys[1] != keys[2]
    assert len({e.uid for e in first}) == len({e.digest for e in first}) == len(first)


def test_what_is_unseen_leaves_the_rest_as_it_is() -> None:
    without = make(unseen_styles={}, unseen_tasks=[], unseen_per_client=0)
    for a, b in zip(make(), without, strict=True):
        assert [e.digest for part in splits(a)[:3] for e in part] == [e.digest for part in splits(b) for e in part]
        assert b.unseen == {}


def test_handwriting_is_divided_and_its_tested_digits_are_never_trained_on() -> None:
    data = load_handwriting()
    clients = make(task_styles={"digit": ["handwriting"]}, unseen_styles={"digit": "night"}, clients=3)
    rows = [[[int(e.uid.split("-")[1]) for e in part] for part in splits(client)[:3]] for client in clients]
    assert len({row for client in rows for part in client for row in part}) == 3 * (8 + 4 + 6)
    for train, val, test in rows:
        assert data.is_train[train + val].all()
        assert not data.is_train[test].any()
    example = clients[0].test[0]
    assert (example.question, example.style) == ("What digit is in the image?", "handwriting")


def test_handwriting_can_be_what_is_unseen() -> None:
    clients = make(task_styles={"digit": ["night", "sketch"]}, unseen_styles={"digit": "handwriting"}, clients=2)
    rows = [[int(e.uid.split("-")[1]) for e in client.unseen["style"]] for client in clients]
    assert not load_handwriting().is_train[rows[0] + rows[1]].any()
    assert len({*rows[0], *rows[1]}) == 10
    assert {e.style for client in clients for e in client.train} == {"night", "sketch"}


def test_handwriting_is_finite() -> None:
    shares = hand_out(2, 0)
    assert np.concatenate([part for share in shares for part in share]).size == 1797
    everything = {"clients": 1, "train_per_client": 5000, "test_per_client": 5000}
    (client,) = make(task_styles={"digit": ["handwriting"]}, unseen_styles={"digit": "night"}, **everything)
    assert (len(client.train), len(client.val), len(client.test)) == (1074, 4, 719)
    with pytest.raises(ValueError, match="clients: found 800 that read handwriting, of which only 719 are tested"):
        hand_out(800, 0)
