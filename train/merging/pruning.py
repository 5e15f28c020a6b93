"""Adapters with their lowest entries masked by a saliency (docs/methods.md#sap), and the two that need no data."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeVar

import torch
from torch import Tensor

from train.lowrank import Factors, product_norm
from train.merging.adapter import Adapter, Computed, deltas, in_file_order, together
from train.merging.selection import Scope, kept_masks
from train.tensors import generator

Rescale = Literal["none", "norm", "robust"]
"""``norm``: ‖ΔW‖_F of a layer as before masking; ``robust``: RobustMerge's complementary scale of a row (its S, see
``robust.py``), ‖row‖₁ before masking over ‖row‖₁ after it, for rows of A, put on B's columns, or for rows of ΔW.
What is masked to zero stays zero."""

Space = Literal["factors", "delta"]
"""What is masked: A and B, or their product ΔW."""

V = TypeVar("V", Tensor, Factors)


def prune(
    adapter: Adapter, saliency: Adapter, ratio: float, scope: Scope = "global", rescale: Rescale = "none"
) -> dict[str, Factors]:
    """The adapter (float64) with exactly ⌊ratio · n⌋ entries of A and B zero: those of lowest saliency (S_B, S_A).

    ``scope``: of all entries together, or of each tensor; equal ones by lower index, tensors in the file's name order
    (A before B). Raises ValueError naming a module whose saliency is missing, misshapen or not finite.
    """
    modules = [module for module, _ in together([adapter])]
    for module in modules:
        for score, factor in zip(_scores(saliency, module), adapter[module], strict=True):
            _fit(module, score, factor)
    masks = kept_masks(lambda: (saliency[module][side] for module in modules for side in (1, 0)), ratio, scope)
    pruned: dict[str, Factors] = {}
    for module, (b, a) in ((module, adapter[module]) for module in modules):
        kept_a, kept_b = next(masks), next(masks)
        before = b.to(torch.float64), a.to(torch.float64)
        pruned[module] = _rescaled(before, (before[0] * kept_b, before[1] * kept_a), rescale)
    return pruned


def pruned_deltas(
    adapter: Adapter,
    saliency: Mapping[str, Tensor],
    ratio: float,
    scope: Scope = "global",
    rescale: Rescale = "none",
) -> Iterator[tuple[str, Tensor]]:
    """Module by module the dense ΔW = BA with its entries of lowest saliency S_Δ (d_out, d_in) zero; as ``prune``.

    A ``saliency`` that computes its values on demand keeps one dense tensor alive at a time.
    """
    products = deltas([adapter])[0]

    def scores() -> Iterator[Tensor]:
        for module, delta in products.items():
            score = _scores(saliency, module)
            _fit(module, score, delta)
            yield score

    for (module, delta), kept in zip(products.items(), kept_masks(scores, ratio, scope), strict=True):
        yield module, _rescaled_delta(delta, delta * kept, rescale)


def magnitude_saliency(adapter: Adapter) -> dict[str, Factors]:
    """(|B|, |A|)."""
    return {module: (b.abs(), a.abs()) for module, (b, a) in adapter.items()}


def random_saliency(adapter: Adapter, seed: int) -> dict[str, Factors]:
    """Uniform draws for (B, A) from the seed and the module's name: clients need seeds of their own."""
    return {
        module: (_uniform(b.shape, seed, module, "B"), _uniform(a.shape, seed, module, "A"))
        for module, (b, a) in adapter.items()
    }


def delta_magnitude_saliency(adapter: Adapter) -> Mapping[str, Tensor]:
    """|BA|, computed on demand."""
    products = deltas([adapter])[0]
    return Computed(list(products), lambda module: products[module].abs())


def delta_random_saliency(adapter: Adapter, seed: int) -> Mapping[str, Tensor]:
    """Uniform draws for ΔW, seeded the same way, computed on demand."""

    def draw(module: str) -> Tensor:
        b, a = adapter[module]
        return _uniform((b.shape[0], a.shape[1]), seed, module, "delta")

    return Computed(in_file_order(adapter), draw)


def _uniform(shape: Iterable[int], seed: int, *name: str) -> Tensor:
    return torch.rand(tuple(shape), generator=generator(seed, "saliency", *name), dtype=torch.float64)


def _scores(saliency: Mapping[str, V], module: str) -> V:
    if module not in saliency:
        raise ValueError(f"{module}: has no saliency.")
    return saliency[module]


def _fit(module: str, score: Tensor, masked: Tensor) -> None:
    if score.shape != masked.shape:
        raise ValueError(f"{module}: saliency of shape {tuple(score.shape)} for a tensor of {tuple(masked.shape)}.")
    if not bool(score.isfinite().all()):
        raise ValueError(f"{module}: saliency holds a value that is not finite.")


def _rescaled(before: Factors, after: Factors, rescale: Rescale) -> Factors:
    b, a = after
    if rescale == "norm":
        norm = product_norm(b, a)
        b = b * (product_norm(*before) / norm if norm else 0.0)
    if rescale == "robust":
        b = b * complement(before[1], a)
    return b, a


def _rescaled_delta(before: Tensor, after: Tensor, rescale: Rescale) -> Tensor:
    if rescale == "norm":
        norm = float(after.norm())
        return after * (float(before.norm()) / norm if norm else 0.0)
    if rescale == "robust":
        return after * complement(before, after)[:, None]
    return after


def complement(before: Tensor, after: Tensor) -> Tensor:
    """S (rows,): ‖row‖₁ before masking over ‖row‖₁ after it, 0 for a row masked to zero (RobustMerge)."""
    old, new = before.abs().sum(dim=1), after.abs().sum(dim=1)
    return torch.where(new > 0, old / new, 0.0)
