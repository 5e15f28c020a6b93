"""Named tensors: the only form in which states, parcels and updates exist, in memory and on disk."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load, load_file, save
from torch import Tensor

Tensors = dict[str, Tensor]
Schema = dict[str, tuple[tuple[int, ...], torch.dtype]]


def to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The tensors as safetensors bytes; equal tensors give equal bytes."""
    return save({name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)})


def from_bytes(data: bytes) -> Tensors:
    return load(data)


def read(path: Path) -> Tensors:
    return load_file(path)


def schema_of(tensors: Mapping[str, Tensor]) -> Schema:
    """Name → (shape, dtype)."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def derive_seed(seed: int, *parts: str | int) -> int:
    """A seed of its own (63 bits) for each purpose, the same on every machine: (seed, round, client) and the like."""
    text = "/".join(str(part) for part in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *parts: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(seed, *parts))
