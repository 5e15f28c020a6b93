"""The base as an adapter that changes nothing.

On vLLM's CPU build a row without an adapter, batched with rows that have one, reads another adapter's slot; so the
un-adapted base is asked for through an adapter whose B is zero.
"""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from adapters_store.base import QUANTISED


def write_zero_adapter(base: Path, folder: Path) -> Path:
    """Writes a rank-1 PEFT adapter of one projection of the checkpoint ``base`` into ``folder``, and returns that."""
    module, rows, columns = _first_projection(base)
    prefix = f"base_model.model.{module}"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {f"{prefix}.lora_A.weight": torch.zeros(1, columns), f"{prefix}.lora_B.weight": torch.zeros(rows, 1)},
        folder / "adapter_model.safetensors",
    )
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def _first_projection(base: Path) -> tuple[str, int, int]:
    for path in sorted(base.glob("*.safetensors")):
        with safe_open(path, framework="pt") as shard:
            for name in sorted(shard.keys()):
                if QUANTISED.search(name) and ".q_proj." in name:
                    rows, columns = shard.get_slice(name).get_shape()
                    return name.removesuffix(".weight"), rows, columns
    raise ValueError(f"base {str(base)!r} has no language model with q_proj layers: only LLaVA-like bases are served")
