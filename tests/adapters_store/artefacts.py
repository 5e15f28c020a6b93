"""Small, sound versions to publish in tests: a prompt for CLIP, a LoRA for the language model."""

import json
from typing import Any

import numpy as np
from safetensors.numpy import save

from adapters_store.pictures.transform import ImageTransform
from adapters_store.versions.manifest import BaseRef, Manifest

BASE = "0123456789abcdef"
TARGETS = r".*language_model.*\.(q_proj|v_proj)"
MODULES = [f"model.language_model.layers.{i}.self_attn.{p}" for i in range(2) for p in ("q_proj", "v_proj")]


def manifest(client: str = "amy", family: str = "clip", **changed: Any) -> Manifest:
    """A manifest without files; ``changed`` replaces fields."""
    fields: dict[str, Any] = {
        "client": client,
        "role": "global" if client == "global" else "personal",
        "family": family,
        "method": "promptfl" if family == "clip" else "fedit",
        "base": BaseRef(id=BASE, name=f"bases/tiny/{family}", quantization="nf4" if family == "mllm" else None),
        "image_transform": ImageTransform(size=64, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
        "prompt_template": "a {class}." if family == "clip" else "{{ messages }}",
        "class_names": ["circle", "square"] if family == "clip" else [],
        "rank": 4 if family == "mllm" else None,
        "target_modules": TARGETS if family == "mllm" else None,
    }
    return Manifest.model_validate(fields | changed)


def prompt_files(value: float = 0.0) -> dict[str, bytes]:
    """A prompt of 4 vectors of width 8, all ``value``."""
    return {"prompt.safetensors": save({"prompt": np.full((4, 8), value, np.float32)})}


def lora_tensors(rank: int = 4, value: float = 0.0, modules: list[str] = MODULES) -> dict[str, np.ndarray]:
    """LoRA pairs as PEFT names them; A is (rank, 16), B is (24, rank)."""
    tensors = {}
    for module in modules:
        tensors[f"base_model.model.{module}.lora_A.weight"] = np.full((rank, 16), value, np.float32)
        tensors[f"base_model.model.{module}.lora_B.weight"] = np.full((24, rank), value, np.float32)
    return tensors


def lora_files(tensors: dict[str, np.ndarray] | None = None, **changed: Any) -> dict[str, bytes]:
    """A PEFT folder's two files; ``changed`` replaces fields of adapter_config.json."""
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "target_modules": TARGETS}
    config |= {"use_dora": False, "modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {}} | changed
    model = save(lora_tensors() if tensors is None else tensors)
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": model}
