"""LoRA adapters on disk, wherever they come from: read a module at a time, written as a PEFT folder."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from train.lowrank import Factors
from train.merging.adapter import A, B, Computed, in_file_order, read_adapter
from train.merging.command.checkpoints import Checkpoint, write_tensors
from train.tensors import Schema

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX: Final = "base_model.model."
NAMED: Final = re.compile(r"\.lora_([AB])(?:\.default)?(?:\.weight)?$")
"""A factor's name ends so in PEFT's files and in its state dicts."""

MORE_THAN_LORA: Final = (
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "fan_in_fan_out",
    "modules_to_save",
    "target_parameters",
    "trainable_token_indices",
    "layer_replication",
)
INSIDE_ATTENTION: Final = ".base_layer.out_proj"
"""PEFT names the attention as a whole where it adapts torch's attention, whose out_proj it holds by this name."""
OTHER_BASE: Final = ("pissa", "olora", "corda", "loftq")
"""Starts of LoRA that subtract it from the base, so that BA is no change of the base's weights."""


class AdapterFile(Computed[Factors]):
    """An adapter on disk as a mapping: module, as PEFT's files name it → (B, A), read when asked for, α/r in B.

    Raises ValueError in one sentence where there is none, or where it holds more than LoRA factors of linears.
    """

    def __init__(self, path: Path) -> None:
        peft = (path / CONFIG).is_file()
        self.path = path
        self.config: dict[str, Any] = _config(path / CONFIG) if peft else {}
        self.tensors = Checkpoint(path / WEIGHTS if peft else path)
        self.stored = {_in_file(name): name for name in self.tensors}
        if len(self.stored) < len(self.tensors):
            raise ValueError(f"{path}: holds a factor twice, under two of its names")
        for name in self.stored:
            if not name.endswith((A, B)):
                raise ValueError(f"{path}: {name} is no LoRA factor, and nothing else can be merged with adapters")
        super().__init__(in_file_order({name.removesuffix(A) for name in self.stored if name.endswith(A)}), self._read)
        for module in {name.removesuffix(B) for name in self.stored if name.endswith(B)} - {*self.names}:
            raise ValueError(f"{path}: {module} has lora_B but no lora_A")

    @property
    def rank(self) -> int:
        """The largest of any module."""
        return max(self.tensors.schema[self.stored[module + A]][0][0] for module in self.names)

    def shape(self, module: str) -> tuple[int, int]:
        """(d_out, d_in)"""
        (d_out, _), (_, d_in) = (self.tensors.schema[self.stored[module + end]][0] for end in (B, A))
        return d_out, d_in

    def _read(self, module: str) -> Factors:
        if module not in self.names:
            raise KeyError(module)
        found = {module + end: self.tensors[self.stored[module + end]] for end in (A, B) if module + end in self.stored}
        try:
            rank = max(1, len(found[module + A]))
            return read_adapter(found, self._alpha(module, rank) / self._divisor(rank))[module]
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from None

    def _alpha(self, module: str, rank: int) -> float:
        for pattern, alpha in (self.config.get("alpha_pattern") or {}).items():
            if re.match(rf"(.*\.)?({pattern})$", module.removeprefix(PREFIX)):
                return float(alpha)
        return float(self.config.get("lora_alpha", rank))

    def _divisor(self, rank: int) -> float:
        return math.sqrt(rank) if self.config.get("use_rslora") else rank


def is_adapter(path: Path) -> bool:
    """Whether a path that exists holds a LoRA adapter rather than a model's weights."""
    return (path / CONFIG).is_file() or any(NAMED.search(name) for name in Checkpoint(path))


def write_peft(
    folder: Path,
    like: AdapterFile,
    rank: int,
    modules: Iterable[tuple[str, Factors]],
    *,
    base: str | None,
    dtype: torch.dtype = torch.float32,
) -> None:
    """A PEFT folder of one rank and scale 1, for the modules of ``like`` in its order, each written as it comes."""
    schema: Schema = {}
    for module in like.names:
        d_out, d_in = like.shape(module)
        schema |= {module + A: ((rank, d_in), dtype), module + B: ((d_out, rank), dtype)}
    write_tensors(folder / WEIGHTS, schema, _padded(modules, rank), {"format": "pt"})
    config = {
        "peft_type": "LORA",
        "target_modules": sorted({m.removeprefix(PREFIX).removesuffix(INSIDE_ATTENTION) for m in like.names}),
        "bias": "none",
        **like.config,
        "r": rank,
        "lora_alpha": rank,
        "rank_pattern": {},
        "alpha_pattern": {},
        "use_rslora": False,
        "lora_dropout": 0.0,
        "inference_mode": True,
    }
    config["base_model_name_or_path"] = base or config.get("base_model_name_or_path")
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True))


def _padded(modules: Iterable[tuple[str, Factors]], rank: int) -> Iterator[tuple[str, Tensor]]:
    for module, (b, a) in modules:
        missing = rank - len(a)
        yield module + A, pad(a, (0, 0, 0, missing))
        yield module + B, pad(b, (0, missing))


def _in_file(name: str) -> str:
    """The name as in PEFT's file, where the factor may have been saved under another of its names."""
    found = NAMED.search(name)
    return PREFIX + name[: found.start()].removeprefix(PREFIX) + f".lora_{found[1]}.weight" if found else name


def _config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: is not JSON ({error})") from None
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ValueError(f"{path}: is no LoRA's configuration; peft_type must be 'LORA'")
    for key in MORE_THAN_LORA:
        if config.get(key):
            raise ValueError(f"{path}: {key} is {config[key]!r}; merging takes plain LoRA, where it is not set")
    if str(config.get("init_lora_weights")).startswith(OTHER_BASE):
        raise ValueError(f"{path}: init_lora_weights is {config['init_lora_weights']!r}, which changes the base itself")
    if not isinstance(config.get("lora_alpha"), (int, float)):
        raise ValueError(f"{path}: lora_alpha is {config.get('lora_alpha')!r}, a number is needed")
    return config
