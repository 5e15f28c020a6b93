"""SAP, semantically anchored pruning (the method's notes; docs/methods.md#sap): of every client's one-shot LoRA only
the entries stay to which an alignment loss on a few public anchors is sensitive; then the exact mean, p_k = 1/K.

S = |θ · ∂L/∂θ| elementwise, the first-order change of L if θ were zero; θ is a LoRA's factors (space ``factors``) or
its product ΔW = BA (space ``delta``). ΔW_global = (1/K) Σ scale(M_k ⊙ θ_k).
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from train.lowrank import Factors, dense_recompressed
from train.merging.adapter import Adapter, Computed, Recompressed, deltas, in_file_order, together
from train.merging.means import exact_mean
from train.merging.pruning import Rescale, prune, pruned_deltas
from train.merging.selection import Scope

RATIO = 0.95
"""ρ, the share that is masked (docs/methods.md#sap)."""


def saliency(adapter: Adapter, gradients: Adapter) -> dict[str, Factors]:
    """(|B · ∂L/∂B|, |A · ∂L/∂A|), float64, from gradients (∂L/∂B, ∂L/∂A); α/r is folded into B on both sides."""
    _same_modules(adapter, gradients)
    return {
        module: (_sensitivity(module, b, gradients[module][0]), _sensitivity(module, a, gradients[module][1]))
        for module, (b, a) in adapter.items()
    }


def delta_saliency(adapter: Adapter, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """|ΔW · ∂L/∂ΔW| (d_out, d_in), float64, computed on demand."""
    _same_modules(adapter, gradients)
    products = deltas([adapter])[0]
    return Computed(list(products), lambda module: _sensitivity(module, products[module], gradients[module]))


def _same_modules(adapter: Adapter, gradients: Mapping[str, object]) -> None:
    for module in in_file_order(adapter.keys() ^ gradients.keys()):
        raise ValueError(f"{module}: {'has no gradient' if module in adapter else 'has a gradient but no factors'}.")


def _sensitivity(module: str, value: Tensor, gradient: Tensor) -> Tensor:
    if gradient.shape != value.shape:
        raise ValueError(f"{module}: a gradient of shape {tuple(gradient.shape)} for a tensor of {tuple(value.shape)}.")
    return (value.to(torch.float64) * gradient.to(torch.float64)).abs()


def sap(
    adapters: Sequence[Adapter],
    gradients: Sequence[Adapter],
    *,
    ratio: float = RATIO,
    scope: Scope = "global",
    rescale: Rescale = "none",
) -> dict[str, Factors]:
    """SAP on the factors: rank Σ r_k; ``gradients`` are those of L_align at each adapter, in the same order."""
    return exact_mean(
        [
            prune(adapter, saliency(adapter, gradient), ratio, scope, rescale)
            for adapter, gradient in zip(adapters, gradients, strict=True)
        ]
    )


def sap_delta(
    adapters: Sequence[Adapter],
    gradients: Sequence[Mapping[str, Tensor]],
    *,
    rank: int,
    ratio: float = RATIO,
    scope: Scope = "global",
    rescale: Rescale = "none",
) -> Recompressed:
    """SAP on the products, ∂L/∂ΔW (d_out, d_in) by module: the mean of the masked ΔW_k, recompressed to ``rank``."""
    for _ in together(adapters):
        pass  # refuses adapters that do not fit each other before any is pruned
    streams = [
        pruned_deltas(adapter, delta_saliency(adapter, gradient), ratio, scope, rescale)
        for adapter, gradient in zip(adapters, gradients, strict=True)
    ]
    return Recompressed((module, dense_recompressed(mean, rank)) for module, mean in _means(streams))


def _means(streams: Sequence[Iterator[tuple[str, Tensor]]]) -> Iterator[tuple[str, Tensor]]:
    for clients in zip(*streams, strict=True):
        yield clients[0][0], torch.stack([delta for _, delta in clients]).mean(dim=0)
