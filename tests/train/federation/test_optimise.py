"""Batches, steps and learning rates."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from tests.train.small import config
from train.federation.optimise import batches, learning_rate, optimiser, step_count
from train.methods.contract import Turn
from train.methods.pfedmoap import PFedMoAP, PFedMoAPOptions
from train.sections import ClientConfig

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


def test_the_rate_of_an_epoch() -> None:
    """docs/methods.md#coop: 1e-5 for e = 1, else lr · ½ (1 + cos(π (e − 2) / E)); one epoch: no warm-up."""
    config = ClientConfig(local_epochs=4, lr=0.002, schedule="cosine_epochs")
    found = [learning_rate(config, TRAIN, step, 12) for step in range(12)]
    wanted = [1e-5, 0.002, 0.002 * (1 + math.cos(math.pi / 4)) / 2, 0.001]
    assert found == pytest.approx([rate for rate in wanted for _ in range(3)])
    single = ClientConfig(local_epochs=1, lr=0.002, schedule="cosine_epochs")
    assert [learning_rate(single, TRAIN, step, 3) for step in range(3)] == [0.002] * 3


def test_every_parameter_has_a_rate_of_its_own() -> None:
    parameters = {name: nn.Parameter(torch.zeros(2)) for name in ("prompt", "gate.query.weight")}
    moves = optimiser(ClientConfig(local_epochs=1, optimizer="sgd"), parameters)
    assert [group["params"] for group in moves.param_groups] == [[p] for p in parameters.values()]
    method = PFedMoAP(PFedMoAPOptions(gate_lr=0.03))
    assert [method.rate(name, 0.1) for name in parameters] == [0.1, 0.03]


def test_a_length_must_be_given_once() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        ClientConfig()
    with pytest.raises(ValueError, match=r"schedule: found .cosine_epochs., which needs client.local_epochs"):
        ClientConfig(local_steps=3, schedule="cosine_epochs")


@pytest.mark.parametrize(
    ("name", "client", "reason"),
    [
        ("pfedmoap", {"personal_steps": 3}, r"client.personal_steps: found 3; pfedmoap publishes"),
        ("fedit", {"augment": "crop_flip"}, r"client.augment: found 'crop_flip'; fedit allows none"),
    ],
)
def test_options_that_do_not_fit_the_method_are_refused(name: str, client: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        config(name, client=client)
