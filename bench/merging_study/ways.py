"""The merges that are compared: name → adapter, from the LoRAs of all styles but one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Generator

from bench.merging_study.clients import resident
from train.data.anchors import AnchorOptions, anchors
from train.lowrank import Factors
from train.merging.adapter import Adapter, write_adapter
from train.merging.anchored import anchored
from train.merging.dare import dare
from train.merging.knots import knots
from train.merging.means import exact_mean, factor_mean, factor_of_norm, scaled_mean, total_norm
from train.merging.pruning import Rescale, magnitude_saliency, prune, random_saliency
from train.merging.robust import robust_merge
from train.merging.sap import saliency, sap, sap_delta
from train.merging.selection import Scope
from train.merging.ties import ties
from train.models.alignment_gradients import alignment_gradients
from train.models.captions import Captions
from train.tensors import derive_seed, generator

Way = Callable[["Clients"], Adapter]


@dataclass(frozen=True)
class Tuned:
    """What images of another seed chose (``python bench/merging.py tune``)."""

    factors: Mapping[str, float]  # of the scaled mean and the baselines
    anchored_lr: float
    anchored_gain: float


class Clients:
    """The LoRAs that are merged, and the seed of what is drawn."""

    def __init__(self, adapters: Sequence[Adapter], seed: int) -> None:
        self.adapters, self.seed = adapters, seed
        self.rank = sum(next(iter(adapter.values()))[1].shape[0] for adapter in adapters)  # Σ r_k
        self._gradients: dict[int, list[dict[str, Factors]]] = {}

    def gradients(self, count: int) -> list[dict[str, Factors]]:
        """Of SAP's loss on so many anchors, for every LoRA."""
        if count not in self._gradients:
            few = captions(self.seed, count).anchors
            found = [alignment_gradients(resident(), write_adapter(a), 1.0, few, "factors") for a in self.adapters]
            self._gradients[count] = found
        return self._gradients[count]


@cache
def captions(seed: int, count: int) -> Captions:
    """The server's public anchors."""
    return Captions(resident(), anchors(AnchorOptions(count=count), "clip", seed))


def pruned(ratio: float, scope: Scope = "global", rescale: Rescale = "none", count: int = 32) -> Way:
    """SAP on the factors."""
    return lambda c: sap(c.adapters, c.gradients(count), ratio=ratio, scope=scope, rescale=rescale)


def pruned_products(ratio: float) -> Way:
    """SAP on the products, at the rank of the exact mean."""

    def way(c: Clients) -> Adapter:
        few = captions(c.seed, 32).anchors
        gradients = [alignment_gradients(resident(), write_adapter(a), 1.0, few, "delta") for a in c.adapters]
        return sap_delta(c.adapters, gradients, rank=c.rank, ratio=ratio)

    return way


def masked_at_random(ratio: float) -> Way:
    """The control that masks as much, whatever it is."""

    def way(c: Clients) -> Adapter:
        seeds = [derive_seed(c.seed, "mask", k) for k in range(len(c.adapters))]
        return exact_mean(
            [prune(a, random_saliency(a, seed), ratio) for a, seed in zip(c.adapters, seeds, strict=True)]
        )

    return way


def magnitude(ratio: float) -> Way:
    return lambda c: exact_mean([prune(a, magnitude_saliency(a), ratio) for a in c.adapters])


def anchored_mean(tuned: Tuned, *, corrupted: bool = True, of_the_mean: bool = False) -> Way:
    """Anchored merging; ``of_the_mean``: one coefficient a layer, for all clients alike."""

    def way(c: Clients) -> Adapter:
        random = generator(c.seed, "corrupt") if corrupted else None
        found = captions(c.seed, 32)
        parts = [exact_mean(c.adapters)] if of_the_mean else c.adapters
        return anchored(
            parts, lambda adapter: found.loss(adapter, random), lr=tuned.anchored_lr, gain=tuned.anchored_gain
        )[0]

    return way


def signed(ratio: float) -> Way:
    """Keeps what lowers the anchors' loss most, −θ · ∂L/∂θ, rather than what changes it most."""

    def way(c: Clients) -> Adapter:
        kept = []
        for adapter, gradients in zip(c.adapters, c.gradients(32), strict=True):
            scores = {m: (-b.cpu() * gradients[m][0], -a.cpu() * gradients[m][1]) for m, (b, a) in adapter.items()}
            kept.append(prune(adapter, scores, ratio))
        return exact_mean(kept)

    return way


def styled(ratio: float, draws: int = 4) -> Way:
    """SAP's saliency by the captions' loss, averaged over corrupted copies of the anchors."""

    def way(c: Clients) -> Adapter:
        found = captions(c.seed, 32)
        kept = []
        for adapter in c.adapters:
            scores = {m: (torch.zeros_like(b), torch.zeros_like(a)) for m, (b, a) in adapter.items()}
            for draw in range(draws):
                of_draw = saliency(adapter, _gradients_of(found, adapter, generator(c.seed, "corrupt", draw)))
                scores = {m: (b + of_draw[m][0], a + of_draw[m][1]) for m, (b, a) in scores.items()}
            kept.append(prune(adapter, scores, ratio))
        return exact_mean(kept)

    return way


def _gradients_of(found: Captions, adapter: Adapter, random: Generator) -> dict[str, Factors]:
    leaves = {m: (b.clone().requires_grad_(), a.clone().requires_grad_()) for m, (b, a) in adapter.items()}
    flat = [tensor for pair in leaves.values() for tensor in pair]
    gradients = iter(torch.autograd.grad(found.loss(leaves, random), flat))
    return {module: (next(gradients), next(gradients)) for module in leaves}


def of_norm(adapter: Adapter, norm: float) -> Adapter:
    """The adapter times what gives it this ‖ΔW‖_F."""
    return scaled_mean([adapter], factor_of_norm([adapter], norm))


BASELINES: dict[str, Way] = {
    "scaled mean": lambda c: exact_mean(c.adapters),
    "TIES": lambda c: ties(c.adapters, rank=c.rank),
    "DARE": lambda c: dare(c.adapters, rank=c.rank, seed=c.seed),
    "KnOTS": lambda c: knots(c.adapters),
    "RobustMerge": lambda c: robust_merge(c.adapters, scale=1.0),
    "SAP .95, factor": pruned(0.95),
}
"""Published merges, each to be multiplied by a factor of its own that is tuned."""

PLAIN: dict[str, Way] = {
    "FedAvg of factors": lambda c: factor_mean(c.adapters),
    "exact mean": lambda c: exact_mean(c.adapters),
}


def size(adapter: Adapter) -> float:
    """‖ΔW‖_F."""
    return total_norm(adapter)
