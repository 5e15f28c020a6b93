"""The median of every entry (Yin et al., ICML 2018, Algorithm 1, option I)."""

from collections.abc import Sequence
from typing import Literal

from train.aggregation.aggregator import Aggregator, by_name, like
from train.tensors import Tensors


class Median(Aggregator):
    """Entry by entry; of an even number the mean of the middle two. Clients count alike, whatever their weights."""

    rule: Literal["median"] = "median"

    def combine(self, received: Tensors, updates: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
        low, high = (len(updates) - 1) // 2, len(updates) // 2
        ordered = {name: stack.sort(dim=0).values for name, stack in by_name(updates).items()}
        return like(updates[0], {name: (stack[low] + stack[high]) / 2 for name, stack in ordered.items()})
