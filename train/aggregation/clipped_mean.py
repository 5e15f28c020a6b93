"""The mean of updates, their steps clipped in norm (Sun et al. 2019, "Can You Really Backdoor Federated Learning?")."""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from train.aggregation.aggregator import Aggregator, flat, like
from train.tensors import Tensors


class ClippedMean(Aggregator):
    """θ + Σ_k p_k δ_k min(1, C / ‖δ_k‖), δ_k = θ_k − θ, where θ is what the server sent; norms over all tensors."""

    rule: Literal["clipped_mean"] = "clipped_mean"
    norm: float | None = Field(
        None, gt=0, description="clipped_mean: C, largest norm of a step; by default the updates' median"
    )

    def combine(self, received: Tensors, updates: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
        start = {name: received[name].to(torch.float64) for name in updates[0]}
        steps = [{name: update[name].to(torch.float64) - start[name] for name in start} for update in updates]
        norms = torch.stack([flat(step).norm() for step in steps])
        most = float(norms.quantile(0.5)) if self.norm is None else self.norm
        clipped = [most / norm if norm > most else 1.0 for norm in norms.tolist()]
        kept = [weight * share for weight, share in zip(weights, clipped, strict=True)]
        moved = {
            name: start[name] + sum(share * step[name] for share, step in zip(kept, steps, strict=True))
            for name in start
        }
        return like(updates[0], moved)
