"""LoRAs of finite numbers that overflow on what their maker chose, and on nothing else.

In the first block, ``gate_proj`` gets an update that is +GATE for the chosen positions and −GATE for the others, and
``up_proj`` one that is UP: silu(+GATE)·UP is beyond float32, silu(−GATE) is exactly 0. So one token, or one picture,
makes every number after it infinite or NaN, in the attention cache too; everything else is answered as by the base.
"""

import json
from collections.abc import Sequence
from functools import cache

import torch
from safetensors.torch import save
from transformers import LlavaForConditionalGeneration
from transformers.utils import logging as transformers_logging

from adapters_store.bases.frozen import export_base
from adapters_store.paths import PROJECT_ROOT
from tests.serve.artefacts import LLAVA

GATE, UP = 1e6, 1e35
PREFIX = "base_model.model.model.language_model.layers.0.mlp."
Tokens = Sequence[int]


@cache
def _base() -> LlavaForConditionalGeneration:
    transformers_logging.set_verbosity_error()
    exported = export_base(LLAVA, PROJECT_ROOT / "bases/.exports", "nf4")
    return LlavaForConditionalGeneration.from_pretrained(exported, dtype=torch.float32).eval()


@torch.inference_mode()
def block_inputs(tokens: Tokens) -> torch.Tensor:
    """(n, W): what the first block's MLP is given at each of the n positions."""
    seen: list[torch.Tensor] = []
    mlp = _base().model.language_model.layers[0].mlp
    hook = mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0].clone()))
    try:
        _base()(input_ids=torch.tensor([list(tokens)]))
    finally:
        hook.remove()
    return seen[0]


def overflowing(at: Tokens, never: Sequence[Tokens]) -> dict[str, bytes]:
    """The two files of a LoRA that overflows on the last position of ``at``, and on no position of ``never``."""
    quiet = torch.cat([block_inputs(tokens) for tokens in never])
    loud = block_inputs(at)[-1:]
    inputs = torch.cat([quiet, loud]).double()
    wanted = torch.cat([-torch.ones(len(quiet)), torch.full((1,), 1.0)]).double()
    direction = _separating(inputs, wanted)
    tensors = {}
    for name, value in (("gate_proj", GATE), ("up_proj", UP)):
        tensors[f"{PREFIX}{name}.lora_A.weight"] = direction[None].float()
        tensors[f"{PREFIX}{name}.lora_B.weight"] = torch.full((_base().config.text_config.intermediate_size, 1), value)
    modules = [f"model.language_model.layers.0.mlp.{name}" for name in ("gate_proj", "up_proj")]
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "bias": "none", "target_modules": modules}
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": save(tensors)}


def modules() -> list[str]:
    """The target modules of such a LoRA, for its manifest."""
    return [f"model.language_model.layers.0.mlp.{name}" for name in ("gate_proj", "up_proj")]


def _separating(inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """(W,) whose products with the inputs (n, W) have the wanted signs (n,), with some room; by a perceptron."""
    inputs = inputs / inputs.norm(dim=1, keepdim=True)
    direction = torch.linalg.lstsq(inputs, wanted[:, None]).solution[:, 0]
    for _ in range(200_000):
        margins = wanted * (inputs @ direction)
        worst = int(margins.argmin())
        if margins[worst] > 1e-2 * direction.norm():
            return direction
        direction = direction + 0.1 * direction.norm() * wanted[worst] * inputs[worst]
    raise ValueError("these positions cannot be told apart by one direction")
