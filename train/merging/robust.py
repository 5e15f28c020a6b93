"""RobustMerge (Zeng et al. 2025, "RobustMerge: Parameter-Efficient Model Merging for MLLMs with Direction Robustness",
§4, Algorithm 1), on LoRA's factors.

Ã_k, B̃_k: the ``density`` share of each tensor largest in magnitude, the rest 0. Complementary scaling: S_k^i =
Σ_j |A_k[i,j]| / Σ_j |Ã_k[i,j]|, so that a row which pruning hurt more, one of a small singular value, gains more.
Cross-task normalisation: S̃_k^i = S_k^i / Σ_n S_n^i. Merged: ΔW = λ (Σ_k B̃_k diag(S̃_k)) (Σ_k Ã_k), λ = 2.

The authors' code differs from the paper in two things not taken over: it raises the S of a tensor to at least their
80th percentile, and multiplies both factors by 2. A row pruned to zero, where the paper's S is infinite, gets 0.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from train.lowrank import Factors
from train.merging.adapter import Adapter, of_one_rank
from train.merging.pruning import complement
from train.merging.selection import kept_masks

DENSITY, SCALE = 0.2, 2.0
"""The share that is kept (the authors' code) and λ (the paper)."""


def robust_merge(adapters: Sequence[Adapter], *, density: float = DENSITY, scale: float = SCALE) -> dict[str, Factors]:
    """RobustMerge as factors of the adapters' one rank; ``scale`` is λ."""
    return {module: _merged(factors, density, scale) for module, factors in of_one_rank(adapters)}


def _merged(factors: Sequence[Factors], density: float, scale: float) -> Factors:
    kept = [(_largest(b, density), _largest(a, density)) for b, a in factors]
    s = torch.stack([complement(a, kept_a) for (_, a), (_, kept_a) in zip(factors, kept, strict=True)])  # (K, r)
    total = s.sum(dim=0)
    share = torch.where(total > 0, s / total, 0.0)
    b = torch.stack([kept_b for kept_b, _ in kept])  # (K, d_out, r)
    return scale * (b * share[:, None]).sum(dim=0), torch.stack([kept_a for _, kept_a in kept]).sum(dim=0)


def _largest(tensor: Tensor, density: float) -> Tensor:
    return tensor * next(kept_masks(lambda: [tensor.abs()], 1 - density, "tensor"))
