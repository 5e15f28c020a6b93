"""The base as an adapter that changes nothing.

On vLLM's CPU build a row without an adapter, batched with rows that have one, reads another adapter's slot; so the
un-adapted base is asked for through an adapter whose B is zero.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from adapters_store.bases.lora_fit import linear_shapes


def write_zero_adapter(base: Path, folder: Path) -> Path:
    """Writes a rank-1 PEFT adapter of one projection of the checkpoint ``base`` into ``folder``, and returns that."""
    module, (out_features, in_features) = _first_projection(base)
    prefix = f"base_model.model.model.language_model.{module}"
    factors = {"lora_A": torch.zeros(1, in_features), "lora_B": torch.zeros(out_features, 1)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({f"{prefix}.{side}.weight": zero for side, zero in factors.items()}, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def _first_projection(base: Path) -> tuple[str, tuple[int, int]]:
    found = sorted((name, shape) for name, shape in linear_shapes(base).items() if name.endswith(".q_proj"))
    if not found:
        raise ValueError(
            f"base {str(base)!r} has no language model with q_proj layers: only LLaVA-like bases are served"
        )
    return found[0]
