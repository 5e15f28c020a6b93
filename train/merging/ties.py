"""TIES: trim, elect sign, disjoint mean (Yadav et al. 2023, "TIES-Merging: Resolving Interference When Merging Models",
§4 and Algorithm 1).

τ̂_k = the ``density`` share of τ_k largest in magnitude, the rest 0; γ = sgn(Σ_k τ̂_k); τ = λ · the mean, entry by
entry, of those τ̂_k whose sign is γ. The paper merges task vectors of whole weights. For LoRA that is ΔW = BA, as the
authors of KnOTS run TIES; PEFT's ``add_weighted_adapter`` runs it on A and on B apart, whose product is another thing.
So: dense, one module at a time, then recompressed. Sign election and disjoint mean are PEFT's functions (an entry whose
sum is 0 counts as positive). PEFT's trim is not used: it works tensor by tensor, the paper on the whole vector, and it
leaves open which of equal entries go.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from train.lowrank import dense_recompressed
from train.merging.adapter import Adapter, Recompressed, deltas
from train.merging.selection import Scope, kept_masks

DENSITY = 0.2
"""The share that is kept: the paper's default, its top 20 %."""


def ties(
    adapters: Sequence[Adapter],
    *,
    rank: int,
    density: float = DENSITY,
    scope: Scope = "global",
    scale: float = 1.0,
) -> Recompressed:
    """TIES on ΔW, recompressed to ``rank``; ``scale`` is λ, 1 in the paper where there is nothing to tune it on.

    ``scope``: trims over an adapter's whole ΔW, as the paper does, or within each module.
    """
    merged = ties_streamed(deltas(adapters), density, scope)
    return Recompressed((module, dense_recompressed(scale * delta, rank)) for module, delta in merged)


def ties_streamed(
    vectors: Sequence[Mapping[str, Tensor]], density: float = DENSITY, scope: Scope = "global"
) -> Iterator[tuple[str, Tensor]]:
    """TIES with λ = 1 on task vectors in tensors of the same names and shapes, tensor by tensor, in their order."""
    masks = [kept_masks(partial(_magnitudes, vector), 1 - density, scope) for vector in vectors]
    for name in vectors[0]:
        yield name, elected_mean([v[name] * next(mask) for v, mask in zip(vectors, masks, strict=True)])


def _magnitudes(vector: Mapping[str, Tensor]) -> Iterator[Tensor]:
    return (vector[name].abs() for name in vector)


def elected_mean(tensors: Sequence[Tensor]) -> Tensor:
    """Algorithm 1's second and third step: per entry the mean of those with the sign of the sum, zeros not counted."""
    from peft.utils.merge_utils import calculate_majority_sign_mask, disjoint_merge  # slow to import

    stack = torch.stack(list(tensors))
    mean: Tensor = disjoint_merge(stack, calculate_majority_sign_mask(stack, method="total"))
    return mean
