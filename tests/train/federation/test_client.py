"""A client's local steps: every parameter moves at the rate that its method gives it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.small import config, federation
from train.methods.contract import Turn
from train.tensors import Tensors

pytestmark = pytest.mark.numeric

ONE_STEP = {"local_steps": 1, "local_epochs": None, "schedule": "constant", "weight_decay": 0.0}


def moved(model: Any, folder: Path, name: str, turn: Turn, more: Tensors, **options: Any) -> Tensors:
    """By name, what one local step from the same start, with ``more`` in the parcel, adds to each parameter."""
    values = config(name, method=options, client=ONE_STEP)
    loop, backend = federation(values, model, folder)
    client, method = loop.clients[0], loop.method
    parcel = {**method.parcel(method.initial(model, loop.clients, 0), client), **more}
    before = method.absorb(method.enrol(model, client, 0), parcel, turn)
    trained = backend.site.train(client.id, turn, parcel, None, 60.0).state
    return {name: tensor - before[name] for name, tensor in trained.items() if tensor.is_floating_point()}


def test_the_gate_has_a_rate_of_its_own(clip: Any, tmp_path: Path) -> None:
    """SGD's first step is the rate times the gradient, which is the same from the same start."""
    others = {"others": torch.randn(2, 4, 128, generator=torch.Generator().manual_seed(0)) / 50}
    turn = Turn("train", 2)
    slow = moved(clip, tmp_path / "slow", "pfedmoap", turn, others, gate_lr=0.01)
    fast = moved(clip, tmp_path / "fast", "pfedmoap", turn, others, gate_lr=0.04)
    gate = "gate.value.weight"
    assert float(fast[gate].norm() / slow[gate].norm()) == pytest.approx(4, rel=1e-3)  # roundings are 1e-5 of a step
    assert torch.equal(slow["prompt"], fast["prompt"])


def test_a_connector_has_a_rate_of_its_own(mllm: Any, tmp_path: Path) -> None:
    """AdamW's first step is the rate in every entry whose gradient is not next to nothing."""
    turn = Turn("train", 1)
    slow = moved(mllm, tmp_path / "slow", "pilot", turn, {}, connector_rate=1.0)
    fast = moved(mllm, tmp_path / "fast", "pilot", turn, {}, connector_rate=3.0)
    adapter = "experts.0.task.linear_2.weight"
    assert float(fast[adapter].abs().median() / slow[adapter].abs().median()) == pytest.approx(3, rel=1e-3)
    factor = next(name for name in slow if ".lora_B." in name)
    assert torch.equal(slow[factor], fast[factor])
