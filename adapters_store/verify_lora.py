"""Whether a LoRA in a version's files is one that serving applies as it was trained.

Letters: r is the rank, N any axis.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from adapters_store.manifest import Manifest
from adapters_store.pointer import StoreError

LORA_KEY = re.compile(r"base_model\.model\.(?P<module>[A-Za-z0-9_.]+)\.lora_(?P<side>[AB])\.weight")
VISION = "visual."  # begins the path of every module of an open_clip model's vision tower
# PEFT options that vLLM refuses or drops in silence, with the only values allowed.
PLAIN: dict[str, tuple[Any, ...]] = {
    "bias": ("none", None),
    "modules_to_save": (None, []),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "fan_in_fan_out": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, {}, []),
    "layer_replication": (None, []),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (False, None),
    "use_bdlora": (False, None),
}


def check_lora(
    manifest: Manifest, name: str, tensors: Mapping[str, tuple[int, ...]], files: Mapping[str, bytes]
) -> None:
    """Raises StoreError where the tensors of the file ``name``, given by their shapes, and the configuration beside it
    are no plain LoRA, or not that of the manifest.
    """
    folder = name.removesuffix("adapter_model.safetensors")
    ranks = _lora_ranks(name, tensors)
    is_own = folder == ""  # of the language model, or of CLIP's vision tower
    _check_peft_config(folder + "adapter_config.json", files, ranks, manifest if is_own else None)
    if is_own:
        _check_modules(manifest.family, name, ranks)


def _lora_ranks(name: str, tensors: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Rank by module path; A is (r, N), B is (N, r)."""
    sides: dict[str, dict[str, tuple[int, ...]]] = {}
    for key, shape in tensors.items():
        match = LORA_KEY.fullmatch(key)
        if match is None:
            raise StoreError(f"tensor {key} of {name} is not allowed: only lora_A and lora_B weights are")
        if len(shape) != 2 or 0 in shape:
            raise StoreError(f"tensor {key} of {name} has shape {list(shape)} where a matrix is needed")
        sides.setdefault(match["module"], {})[match["side"]] = shape
    ranks = {}
    for module, pair in sides.items():
        if set(pair) != {"A", "B"} or pair["A"][0] != pair["B"][1]:
            raise StoreError(f"module {module} of {name} has no matching pair of lora_A (r, in) and lora_B (out, r)")
        ranks[module] = pair["A"][0]
    return ranks


def _check_peft_config(path: str, files: Mapping[str, bytes], ranks: Mapping[str, int], said: Manifest | None) -> None:
    """``said`` is the manifest where its rank and target modules are about this adapter, else None."""
    try:
        config = json.loads(files[path])
        rank, targets = config["r"], config["target_modules"]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"file {path} is not a PEFT configuration with r and target_modules") from error
    if config.get("peft_type") != "LORA":
        raise StoreError(f"file {path} has peft_type {config.get('peft_type')!r} where 'LORA' is needed")
    alpha = config.get("lora_alpha")
    if not isinstance(alpha, int | float) or not 0 < alpha < math.inf:
        raise StoreError(f"file {path} has lora_alpha {alpha!r} where a positive number is needed")
    for option, allowed in PLAIN.items():
        if config.get(option) not in allowed:
            raise StoreError(f"file {path} has {option} {config[option]!r}, which serving does not support")
    if said is not None and rank != said.rank:
        raise StoreError(f"file {path} has r {rank!r} where the manifest's rank is {said.rank}")
    if said is not None and _as_set(targets) != _as_set(said.target_modules):
        raise StoreError(f"file {path} has target_modules {targets!r} where the manifest has {said.target_modules!r}")
    for module, found in ranks.items():
        if found != rank:
            raise StoreError(f"module {module} has rank {found} where {path} says {rank!r}")
        if not _targeted(module, targets):
            raise StoreError(f"module {module} is not among the target_modules of {path}")


def _as_set(targets: object) -> object:
    return frozenset(targets) if isinstance(targets, list) else targets


def _targeted(module: str, targets: str | list[str]) -> bool:
    """PEFT's rule: a string is a pattern for the whole path, a list holds names or ends of paths.

    To target an attention of the vision tower is to target its out_proj, which PEFT keeps inside.
    """
    if module.startswith(VISION):
        module = module.removesuffix(".base_layer.out_proj")
    if isinstance(targets, str):
        return targets == "all-linear" or re.fullmatch(targets, module) is not None
    return any(module == name or module.endswith("." + name) for name in targets)


def _check_modules(family: str, name: str, ranks: Mapping[str, int]) -> None:
    """An adapter of other towers loads in vLLM with success and then answers as the base."""
    for module in ranks:
        if family == "mllm" and "language_model" not in module.split("."):
            raise StoreError(f"module {module} of {name} is outside the language model, where serving would ignore it")
        if family == "clip" and not module.startswith(VISION):
            raise StoreError(f"module {module} of {name} is outside the vision tower, which is all that serving adapts")
