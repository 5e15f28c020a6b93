"""How much a LoRA changes each linear, against the linear itself: ‖sBA‖ / ‖W‖, Frobenius norms.

A bound on it is a bound on what a version can do: a pre-norm transformer normalises what enters each block, so with
updates of at most 100 times the weights every activation stays some 25 orders of magnitude below the largest float32
or bfloat16. Trained adapters change a linear by a few per cent of its norm, the wildest of the tests by four times it.

Letters: r rank; A (r, in), B (out, r); s scale.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from adapters_store.bases.lora_fit import LORA, WEIGHT


def linear_norms(base: Path) -> dict[str, float]:
    """‖W‖ of the linears in the layers of the checkpoint's language model, by their place in it."""
    norms: dict[str, float] = {}
    for path in sorted(base.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  no mapping
                if found := WEIGHT.search(name):
                    norms[found["module"]] = float(torch.linalg.vector_norm(file.get_tensor(name), dtype=torch.float64))
    return norms


def check_magnitude(adapter: Path, norms: Mapping[str, float], most: float) -> None:
    """ValueError with one sentence where an update is more than ``most`` times as large as the linear it changes."""
    config = json.loads((adapter / "adapter_config.json").read_text())
    rank = config["r"]
    scale = config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)
    factors: dict[str, dict[str, Tensor]] = {}
    with safe_open(adapter / "adapter_model.safetensors", framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  no mapping
            if found := LORA.search(name):
                factors.setdefault(found["module"], {})[found["side"]] = file.get_tensor(name)
    for module, pair in sorted(factors.items()):
        ratio = scale * update_norm(pair["B"], pair["A"]) / norms[module]
        if not ratio <= most:
            raise ValueError(f"it changes {module} by {ratio:.3g} times its norm, where at most {most:g} is served")


def update_norm(b: Tensor, a: Tensor) -> float:
    """‖BA‖ of B (out, r) and A (r, in), from their Grams (r, r) in float64: nothing of the size of W is made."""
    left, right = b.double(), a.double()
    return math.sqrt(max(float(((left.T @ left) * (right @ right.T).T).sum()), 0.0))
