"""Multi-Krum (Blanchard et al., NeurIPS 2017): the mean of the updates that lie closest to others."""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from train.aggregation.aggregator import Aggregator, flat
from train.aggregation.averaging import weighted_mean
from train.tensors import Tensors


class MultiKrum(Aggregator):
    """An update's score is the sum of its squared distances to the K − f − 2 nearest others, over all tensors together.

    The K − f of lowest score are averaged by their weights; equal ones rank in client order. The paper's guarantee
    needs K > 2f + 2.
    """

    rule: Literal["multi_krum"] = "multi_krum"
    attackers: int = Field(1, ge=1, description="multi_krum: f, how many updates may be hostile")

    @property
    def least(self) -> int:
        return 2 * self.attackers + 3

    def combine(self, received: Tensors, updates: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
        if len(updates) < self.least:
            raise ValueError(
                f"method.aggregator: {len(updates)} updates, multi_krum needs {self.least} against {self.attackers}"
            )
        scores = self.scores(updates)
        kept = sorted(sorted(range(len(updates)), key=lambda k: (scores[k], k))[: len(updates) - self.attackers])
        total = sum(weights[k] for k in kept)
        return weighted_mean([updates[k] for k in kept], [weights[k] / total for k in kept])

    def scores(self, updates: Sequence[Tensors]) -> list[float]:
        """One for each update, in their order."""
        rows = torch.stack([flat(update) for update in updates])
        squares = torch.stack([(rows - row).square().sum(dim=1) for row in rows])
        nearest = squares.sort(dim=1).values[:, 1 : len(updates) - self.attackers - 1]  # the first is itself
        return [float(score) for score in nearest.sum(dim=1)]
