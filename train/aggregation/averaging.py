"""Weighted means of clients' tensors: pure, in the order given, accumulated in float64."""

from collections.abc import Sequence
from typing import Literal

import torch

from train.tensors import Tensors


def shares(examples: Sequence[int], weighting: Literal["examples", "uniform"]) -> list[float]:
    """p_k over the clients that are averaged, summing to one: n_k / Σ n, or 1/K."""
    if weighting == "uniform":
        return [1 / len(examples)] * len(examples)
    total = sum(examples)
    return [n / total for n in examples]


def weighted_mean(tensors: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
    """Σ_k p_k θ_k for every name, each in its own dtype."""
    mean: Tensors = {}
    for name, first in tensors[0].items():
        total = torch.zeros(first.shape, dtype=torch.float64)
        for client, weight in zip(tensors, weights, strict=True):
            total += weight * client[name].to(torch.float64)
        mean[name] = total.to(first.dtype)
    return mean
