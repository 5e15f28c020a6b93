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
from train.merge.adapter_config import CONFIG, PREFIX, WEIGHTS, merged_config, peft_folder, read_config
from train.merge.model_files import Checkpoint, write_tensors
from train.merging.adapter import A, B, Computed, in_file_order, read_adapter
from train.tensors import Schema

NAMED: Final = re.compile(r"\.lora_([AB])(?:\.default)?(?:\.weight)?$")
"""A factor's name ends so in PEFT's files and in its state dicts."""


class AdapterFile(Computed[Factors]):
    """An adapter on disk as a mapping: module, as PEFT's files name it → (B, A), read when asked for, α/r in B.

    Raises ValueError in one sentence where there is none, or where it holds more than LoRA factors of linears.
    """

    def __init__(self, path: Path) -> None:
        folder = peft_folder(path)
        self.path = path
        self.config: dict[str, Any] = read_config(folder / CONFIG) if folder else {}
        self.tensors = Checkpoint(folder / WEIGHTS if folder else path)
        self.stored = {_in_file(name): name for name in self.tensors}
        if len(self.stored) < len(self.tensors):
            raise ValueError(f"{path}: holds a factor twice, under two of its names")
        for name in self.stored:
            if not name.endswith((A, B)):
                raise ValueError(f"{path}: {name} is no LoRA factor, and nothing else can be merged with adapters")
        super().__init__(in_file_order({name.removesuffix(A) for name in self.stored if name.endswith(A)}), self._read)
        for module in {name.removesuffix(B) for name in self.stored if name.endswith(B)} - {*self.names}:
            raise ValueError(f"{path}: {module} has lora_B but no lora_A")
        if not self.names:
            raise ValueError(f"{path}: holds no tensors, an adapter has at least one lora_A and lora_B")

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
    return peft_folder(path) is not None or any(NAMED.search(name) for name in Checkpoint(path))


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
    config = merged_config(like.config, like.names, rank, base)
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
