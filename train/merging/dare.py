"""DARE: drop and rescale (Yu et al. 2024, "Language Models are Super Mario", §3), then the mean.

Every entry of τ_k is dropped with probability p and what stays is divided by 1 − p, so that its expectation is τ_k.
The paper works on whole task vectors; for LoRA that is ΔW = BA, as the authors of KnOTS do it (PEFT's ``dare_linear``
drops entries of A and of B apart and then adds up each, which adds products across clients). Entries are independent,
as in the paper: their number is p n on average only.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from train.lowrank import dense_recompressed
from train.merging.adapter import Adapter, Recompressed, deltas
from train.tensors import generator

DROP = 0.9
"""p; the paper finds .9 harmless for most of its models."""


def dare(adapters: Sequence[Adapter], *, rank: int, seed: int, drop: float = DROP) -> Recompressed:
    """DARE on ΔW with p_k = 1/K, recompressed to ``rank``; the same seed drops the same entries."""
    merged = dare_streamed(deltas(adapters), seed, drop)
    return Recompressed((module, dense_recompressed(delta, rank)) for module, delta in merged)


def dare_streamed(
    vectors: Sequence[Mapping[str, Tensor]], seed: int, drop: float = DROP
) -> Iterator[tuple[str, Tensor]]:
    """DARE on task vectors in tensors of the same names and shapes, tensor by tensor, in their order."""
    if not 0 <= drop < 1:
        raise ValueError(f"drop: {drop} given, it must be at least 0 and below 1.")
    for name in vectors[0]:
        dropped = [
            vector[name] * _kept(vector[name], drop, seed, name, client) / (1 - drop)
            for client, vector in enumerate(vectors)
        ]
        yield name, torch.stack(dropped).mean(dim=0)


def _kept(tensor: Tensor, drop: float, seed: int, name: str, client: int) -> Tensor:
    return torch.rand(tensor.shape, generator=generator(seed, "dare", name, client), dtype=torch.float64) >= drop
