"""SAP's gradients on the 4-bit LLaVA: both spaces agree, and a small step changes the loss as they say."""

from typing import Any

import pytest
import torch

from tests.floats import BACK, LLAVA_LOGITS, check_close
from train.data.anchors import AnchorOptions, anchors
from train.models.answer_gradients import answer_gradients
from train.models.lora import LoraOptions, LoraPersonal, adapt_, initial_lora
from train.models.mllm import Mllm
from train.tensors import Tensors

pytestmark = pytest.mark.numeric

LORA = LoraOptions(rank=2, alpha=4, targets=("q_proj", "down_proj"))


def adapter(mllm: Mllm) -> Tensors:
    start, random = initial_lora(adapt_(mllm, LORA), 0), torch.Generator().manual_seed(0)
    return {
        name: t if ".lora_A." in name else 0.02 * torch.randn(t.shape, generator=random) for name, t in start.items()
    }


def test_both_spaces_agree_and_the_loss_follows(resident: Any) -> None:
    mllm = resident("fedit")
    tensors, few = adapter(mllm), anchors(AnchorOptions(count=3), "mllm", 0)
    factors = answer_gradients(mllm, LORA, tensors, few, "factors")
    dense = answer_gradients(mllm, LORA, tensors, few, "delta")
    assert factors.keys() == dense.keys()
    for module, (of_b, of_a) in factors.items():
        b, a = 2 * tensors[module + ".lora_B.weight"], tensors[module + ".lora_A.weight"]
        check_close(dense[module] @ a.T, of_b, BACK * LLAVA_LOGITS)
        check_close(b.T @ dense[module], of_a, BACK * LLAVA_LOGITS)

    def loss(step: float) -> float:
        """With every B moved along its gradient, of which B·s is the factor that gradients are of."""
        moved = {
            n: t + step * factors[n[:-14]][0] / 2 if n.endswith(".lora_B.weight") else t for n, t in tensors.items()
        }
        personal = LoraPersonal(mllm, LORA, moved)
        return personal.outputs(personal.prepare(few), range(len(few))).loss.item()

    slope = sum(float(of_b.double().pow(2).sum()) for of_b, _ in factors.values())
    step = 2e-3 / slope**0.5
    assert abs((loss(step) - loss(-step)) / (2 * step) / slope - 1) < 0.02
