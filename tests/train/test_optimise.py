"""Batches, steps and learning rates."""

import pytest

from train.config import ClientConfig
from train.methods.base import Turn
from train.optimise import batches, learning_rate, step_count

TRAIN, PERSONAL = Turn("train", 1), Turn("personal", 4)
STEPS = ClientConfig(local_steps=5, personal_steps=3, batch_size=4, lr=0.1)


def test_steps() -> None:
    epochs = ClientConfig(local_epochs=2, batch_size=4)
    assert step_count(STEPS, 10, TRAIN) == 5
    assert step_count(STEPS, 10, PERSONAL) == 3
    assert step_count(epochs, 10, TRAIN) == 6
    assert step_count(epochs, 1, TRAIN) == 2


def test_every_epoch_sees_every_example_once() -> None:
    drawn = list(batches(STEPS, 10, 6, 0, TRAIN, "ann"))
    assert [len(rows) for rows in drawn] == [4, 4, 2, 4, 4, 2]
    for epoch in (drawn[:3], drawn[3:]):
        assert sorted(row for rows in epoch for row in rows) == list(range(10))
    assert drawn[:3] != drawn[3:]


def test_batches_are_a_function_of_seed_turn_and_client() -> None:
    drawn = list(batches(STEPS, 10, 3, 0, TRAIN, "ann"))
    assert drawn == list(batches(STEPS, 10, 3, 0, TRAIN, "ann"))
    for other in ((1, TRAIN, "ann"), (0, Turn("train", 2), "ann"), (0, Turn("train", 1, 1), "ann"), (0, TRAIN, "bob")):
        assert drawn != list(batches(STEPS, 10, 3, *other))


def test_learning_rates() -> None:
    assert [round(learning_rate(STEPS, TRAIN, s, 4), 4) for s in range(4)] == [0.1, 0.0854, 0.05, 0.0146]
    constant = STEPS.model_copy(update={"schedule": "constant", "personal_lr": 0.3})
    assert learning_rate(constant, TRAIN, 3, 4) == 0.1
    assert learning_rate(constant, PERSONAL, 3, 4) == 0.3


def test_a_length_must_be_given_once() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        ClientConfig()
