"""Adaptive text-adapter aggregation (Pilot, AAAI 2025; docs/methods.md#ata): for every client a mean of its own LoRA
and the nearest ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from train.aggregation.averaging import weighted_mean
from train.tensors import Tensors

CLOSEST = 1e-12
"""Floor of a distance: identical clients share alike instead of dividing by zero."""


def adaptive_means(factors: Sequence[Tensors], examples: Sequence[int], top_m: int, scale: float) -> list[Tensors]:
    """One mean of the LoRA factors A, B for each client, in their order.

    Distances: norm of the difference of all factors, flattened, with the LoRA scale folded into B. A client's own
    weight is n_k / (n_k + Σ n_i) over its ``top_m`` nearest others, or all there are; these share the rest ∝ 1 / d.
    """
    rows = distances(factors, scale).tolist()
    return [weighted_mean(factors, ata_weights(k, row, examples, top_m)) for k, row in enumerate(rows)]


def distances(factors: Sequence[Tensors], scale: float) -> Tensor:
    """(K, K) float64, from the differences themselves: in a Gram, near neighbours would cancel and swap."""
    flat = torch.stack([_flat(client, scale) for client in factors])
    return torch.stack([(flat - own).norm(dim=1) for own in flat])


def ata_weights(client: int, row: Sequence[float], examples: Sequence[int], top_m: int) -> list[float]:
    """How much each client counts in this one's mean, summing to 1; equally far ones rank in client order."""
    others = sorted((i for i in range(len(row)) if i != client), key=lambda i: (row[i], i))[:top_m]
    weights = [0.0] * len(row)
    weights[client] = examples[client] / (examples[client] + sum(examples[i] for i in others))
    closeness = {i: 1 / max(row[i], CLOSEST) for i in others}
    for i, close in closeness.items():
        weights[i] = (1 - weights[client]) * close / sum(closeness.values())
    return weights


def _flat(factors: Tensors, scale: float) -> Tensor:
    folded = [
        factor.double().flatten() * (scale if ".lora_B." in name else 1.0) for name, factor in sorted(factors.items())
    ]
    return torch.cat(folded)
