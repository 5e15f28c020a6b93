"""PEFT's adapter_config.json: what in it is plain LoRA, and what a merge's own says."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX: Final = "base_model.model."
INSIDE_ATTENTION: Final = ".base_layer.out_proj"
"""PEFT names the attention as a whole where it adapts torch's attention, whose out_proj it holds by this name."""
MORE_THAN_LORA: Final = (
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "velora_config",
    "monteclora_config",
    "lora_bias",
    "fan_in_fan_out",
    "modules_to_save",
    "target_parameters",
    "trainable_token_indices",
    "layer_replication",
)
OTHER_BASE: Final = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Starts of LoRA that subtract it from the base, so that BA is no change of the base's weights."""
KEPT: Final = (
    "task_type",
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
)
"""What is as true of a merge as of what was merged: which model it belongs to, and where in it."""


def peft_folder(path: Path) -> Path | None:
    """The folder of an adapter of PEFT's that is named by the folder or by the weights in it."""
    folder = path.parent if path.name == WEIGHTS else path
    return folder if (folder / CONFIG).is_file() else None


def read_config(path: Path) -> dict[str, Any]:
    """Raises ValueError, in one sentence, where it is no plain LoRA's."""
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: is not JSON ({error})") from None
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ValueError(f"{path}: is no LoRA's configuration; peft_type must be 'LORA'")
    for key in MORE_THAN_LORA:
        if config.get(key):
            raise ValueError(f"{path}: {key} is {config[key]!r}; merging takes plain LoRA, where it is not set")
    if str(config.get("init_lora_weights")).lower().startswith(OTHER_BASE):
        raise ValueError(f"{path}: init_lora_weights is {config['init_lora_weights']!r}, which changes the base itself")
    if not isinstance(config.get("lora_alpha"), (int, float)):
        raise ValueError(f"{path}: lora_alpha is {config.get('lora_alpha')!r}, a number is needed")
    return config


def merged_config(like: dict[str, Any], modules: Iterable[str], rank: int, base: str | None) -> dict[str, Any]:
    """Of a merge of this rank and scale 1, in an adapter's modules and with its base, unless another is given."""
    names = sorted({module.removeprefix(PREFIX).removesuffix(INSIDE_ATTENTION) for module in modules})
    named = isinstance(like.get("target_modules"), list)  # a pattern is left behind: the store takes names
    config: dict[str, Any] = {
        "target_modules": like["target_modules"] if named else names,
        **{key: like[key] for key in KEPT if key in like},
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    return config | {"base_model_name_or_path": base, "revision": None} if base else config
