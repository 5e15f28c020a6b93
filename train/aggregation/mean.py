"""The weighted mean (FedAvg; McMahan et al., AISTATS 2017)."""

from collections.abc import Sequence
from typing import Literal

from train.aggregation.aggregator import Aggregator
from train.aggregation.averaging import weighted_mean
from train.tensors import Tensors


class Mean(Aggregator):
    """Σ_k p_k θ_k."""

    rule: Literal["mean"] = "mean"

    def combine(self, received: Tensors, updates: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
        return weighted_mean(updates, weights)
