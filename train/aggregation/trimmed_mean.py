"""The trimmed mean of every entry (Yin et al., ICML 2018, Algorithm 1, option II)."""

from collections.abc import Sequence
from fractions import Fraction
from math import floor
from typing import Literal

from pydantic import Field

from train.aggregation.aggregator import Aggregator, by_name, like
from train.tensors import Tensors


class TrimmedMean(Aggregator):
    """Entry by entry without the ⌊β K⌋ largest and as many smallest, at least one each; the rest count alike."""

    rule: Literal["trimmed_mean"] = "trimmed_mean"
    trim: float = Field(0.2, gt=0, lt=0.5, description="trimmed_mean: β, the share cut off at either end")

    @property
    def least(self) -> int:
        return 3

    def combine(self, received: Tensors, updates: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
        cut = max(1, floor(Fraction(self.trim).limit_denominator(10**6) * len(updates)))
        if len(updates) < self.least:
            raise ValueError(f"method.aggregator: {len(updates)} updates, trimmed_mean needs {self.least}")
        ordered = {name: stack.sort(dim=0).values for name, stack in by_name(updates).items()}
        return like(updates[0], {name: stack[cut:-cut].mean(dim=0) for name, stack in ordered.items()})
