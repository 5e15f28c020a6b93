"""Whether a LoRA in a version's files is one that serving applies as it was trained.

Letters: r is the rank, N any axis.
"""

import re
from collections.abc import Mapping

from adapters_store.errors import StoreError, shown
from adapters_store.versions.manifest import Manifest
from adapters_store.versions.peft_config import parse_config
from adapters_store.versions.target_modules import selector

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
LORA_KEY = re.compile(r"base_model\.model\.(?P<module>[A-Za-z0-9_.]+)\.lora_(?P<side>[AB])\.weight")
VISION = "visual."  # begins the path of every module of an open_clip model's vision tower


def check_lora(manifest: Manifest, tensors: Mapping[str, tuple[int, ...]], files: Mapping[str, bytes]) -> None:
    """Raises StoreError where the tensors of ``adapter_model.safetensors``, given by their shapes, and the
    configuration beside it are no plain LoRA, or not that of the manifest.
    """
    ranks = _lora_ranks(tensors)
    _check_peft_config(files, ranks, manifest)
    _check_modules(manifest.family, ranks)


def _lora_ranks(tensors: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Rank by module path; A is (r, N), B is (N, r)."""
    sides: dict[str, dict[str, tuple[int, ...]]] = {}
    for key, shape in tensors.items():
        match = LORA_KEY.fullmatch(key)
        if match is None:
            raise StoreError(f"tensor {key} of {WEIGHTS} is not allowed: only lora_A and lora_B weights are")
        if len(shape) != 2:
            raise StoreError(f"tensor {key} of {WEIGHTS} has shape {list(shape)} where a matrix is needed")
        sides.setdefault(match["module"], {})[match["side"]] = shape
    ranks = {}
    for module, pair in sides.items():
        if set(pair) != {"A", "B"} or pair["A"][0] != pair["B"][1]:
            raise StoreError(f"module {module} of {WEIGHTS} has no matching pair of lora_A (r, in) and lora_B (out, r)")
        ranks[module] = pair["A"][0]
    return ranks


def _check_peft_config(files: Mapping[str, bytes], ranks: Mapping[str, int], said: Manifest) -> None:
    config = parse_config(CONFIG, files[CONFIG])
    if config.r != said.rank:
        raise StoreError(f"file {CONFIG} has r {config.r} where the manifest's rank is {said.rank}")
    if _as_set(config.target_modules) != _as_set(said.target_modules):
        raise StoreError(
            f"file {CONFIG} has target_modules {shown(config.target_modules)} where the manifest has "
            f"{shown(said.target_modules)}"
        )
    selects = selector(config.target_modules)
    for module, found in ranks.items():
        if found != config.r:
            raise StoreError(f"module {module} has rank {found} where {CONFIG} says {config.r}")
        if not selects(_targeted(module)):
            raise StoreError(f"module {module} is not among the target_modules of {CONFIG}")


def _as_set(targets: str | list[str] | None) -> object:
    return frozenset(targets) if isinstance(targets, list) else targets


def _targeted(module: str) -> str:
    """To target an attention of the vision tower is to target its out_proj, which PEFT keeps inside."""
    return module.removesuffix(".base_layer.out_proj") if module.startswith(VISION) else module


def _check_modules(family: str, ranks: Mapping[str, int]) -> None:
    """An adapter of other towers loads in vLLM with success and then answers as the base."""
    for module in ranks:
        if family == "mllm" and "language_model" not in module.split("."):
            raise StoreError(
                f"module {module} of {WEIGHTS} is outside the language model, where serving would ignore it"
            )
        if family == "clip" and not module.startswith(VISION):
            raise StoreError(
                f"module {module} of {WEIGHTS} is outside the vision tower, which is all that serving adapts"
            )
