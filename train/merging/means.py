"""Means of adapters with p_k = 1/K: of the factors, of the products, and of the products scaled down."""

import math
from collections.abc import Sequence

import torch

from train.lowrank import Factors, product_norm, recompressed, stacked
from train.merging.adapter import Adapter, Recompressed, of_one_rank, together


def factor_mean(adapters: Sequence[Adapter]) -> dict[str, Factors]:
    """FedAvg of the factors, (B̄, Ā), of equal ranks: not the mean of the products (docs/methods.md#low-rank-tools)."""
    mean: dict[str, Factors] = {}
    for module, factors in of_one_rank(adapters):
        bs, as_ = zip(*factors, strict=True)
        mean[module] = torch.stack(bs).mean(dim=0), torch.stack(as_).mean(dim=0)
    return mean


def exact_mean(adapters: Sequence[Adapter]) -> dict[str, Factors]:
    """(1/K) Σ B_k A_k exactly, as factors of rank Σ r_k by concatenation."""
    return scaled_mean(adapters, 1.0)


def scaled_mean(adapters: Sequence[Adapter], factor: float) -> dict[str, Factors]:
    """The exact mean times ``factor``: shrinkage alone, the control for what pruning gains by its smaller norm."""
    return {
        module: stacked(factors, [factor / len(adapters)] * len(adapters)) for module, factors in together(adapters)
    }


def factor_of_norm(adapters: Sequence[Adapter], norm: float) -> float:
    """The ``factor`` with which the scaled mean has this ``total_norm``; 0 where the mean itself is zero."""
    whole = total_norm(exact_mean(adapters))
    return norm / whole if whole else 0.0


def total_norm(adapter: Adapter) -> float:
    """‖ΔW‖_F over all modules together."""
    return math.sqrt(sum(product_norm(b, a) ** 2 for b, a in adapter.values()))


def recompress(adapter: Adapter, rank: int) -> Recompressed:
    """The adapter at a serving rank, the best of it for every module, with the errors."""
    return Recompressed((module, recompressed(b, a, rank)) for module, [(b, a)] in together([adapter]))
