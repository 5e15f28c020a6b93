"""Every way of merging adapters, by the name it has on the command line."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch

from train.lowrank import Factors, dense_recompressed
from train.merge.options import ASKING, MergeOptions
from train.merging.adapter import Adapter, Computed, Recompressed
from train.merging.ataf import ataf
from train.merging.dare import dare
from train.merging.knots import knots
from train.merging.means import exact_mean, factor_mean, scaled_mean
from train.merging.pruning import (
    delta_magnitude_saliency,
    delta_random_saliency,
    magnitude_saliency,
    prune,
    pruned_deltas,
    random_saliency,
)
from train.merging.robust import robust_merge
from train.merging.ties import ties
from train.tensors import derive_seed

Merged = Mapping[str, Factors]


def _ataf(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Merged:
    assert options.alpha != "jsd"
    return ataf(adapters[0], adapters[1], options.alpha)


def _mean(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Merged:
    return exact_mean(adapters)


def _factor_mean(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Merged:
    return factor_mean(adapters)


def _scaled(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Merged:
    return scaled_mean(adapters, options.multiplier)


def _ties(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Merged:
    return ties(adapters, rank=rank, density=options.kept, scope=options.scope, scale=options.multiplier)


def _dare(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Merged:
    return dare(adapters, rank=rank, seed=options.seed, drop=1 - options.kept)


def _knots(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Merged:
    return knots(adapters, density=options.kept, scope=options.scope, scale=options.multiplier)


def _robust(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Merged:
    return robust_merge(adapters, density=options.kept, scale=options.multiplier)


def _magnitude(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Merged:
    if options.space == "delta":
        return _masked(adapters, [delta_magnitude_saliency(a) for a in adapters], options, rank)
    pruned = [prune(a, magnitude_saliency(a), options.ratio, options.scope, options.rescale) for a in adapters]
    return exact_mean(pruned)


def _random(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Merged:
    seeds = [derive_seed(options.seed, "adapter", k) for k in range(len(adapters))]
    seeded = list(zip(adapters, seeds, strict=True))
    if options.space == "delta":
        return _masked(adapters, [delta_random_saliency(a, seed) for a, seed in seeded], options, rank)
    return exact_mean(
        [prune(a, random_saliency(a, seed), options.ratio, options.scope, options.rescale) for a, seed in seeded]
    )


def _masked(
    adapters: Sequence[Adapter],
    saliencies: Sequence[Mapping[str, torch.Tensor]],
    options: MergeOptions,
    rank: int,
) -> Recompressed:
    """The mean of the products, each masked by its saliency."""
    streams = [
        pruned_deltas(adapter, saliency, options.ratio, options.scope, options.rescale)
        for adapter, saliency in zip(adapters, saliencies, strict=True)
    ]
    return Recompressed(
        (client[0][0], dense_recompressed(torch.stack([delta for _, delta in client]).mean(0), rank))
        for client in zip(*streams, strict=True)
    )


ADAPTER_MERGES: Final[dict[str, Callable[[Sequence[Adapter], MergeOptions, int], Merged]]] = {
    "ataf": _ataf,
    "mean": _mean,
    "factor_mean": _factor_mean,
    "scaled": _scaled,
    "ties": _ties,
    "dare": _dare,
    "knots": _knots,
    "robust": _robust,
    "magnitude": _magnitude,
    "random": _random,
}
"""All but those that ask the base, which are in ``resident.py``."""


def parts(names: Sequence[str], options: MergeOptions) -> list[list[str]]:
    """Which modules are merged together: all where entries are counted over all or the base runs, else one each."""
    counted = options.method in ("magnitude", "random", "ties", "knots") and options.scope == "global"
    return [list(names)] if counted or options.method in ASKING else [[name] for name in names]


def restricted(adapter: Adapter, names: Sequence[str]) -> Adapter:
    """The adapter's modules of these names, read when asked for."""
    return Computed(names, adapter.__getitem__)


def natural_rank(ranks: Sequence[int], options: MergeOptions) -> int:
    """The rank at which the merge of adapters of these ranks is exact, or, for dense ones, the exact mean's."""
    return max(ranks) if options.method in ("factor_mean", "robust") else sum(ranks)
