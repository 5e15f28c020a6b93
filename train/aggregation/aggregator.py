"""The surface of an aggregator, and what several of them need."""

from collections.abc import Sequence

import torch
from torch import Tensor

from train.section import Section
from train.tensors import Tensors


class Aggregator(Section):
    """Options and the rule itself; ``rule`` is its name in a configuration."""

    rule: str

    @property
    def least(self) -> int:
        """How many updates the rule needs."""
        return 1

    def combine(self, received: Tensors, updates: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
        """What the server makes of K updates (the same names and shapes), which began at ``received``.

        ``weights``: p_k, summing to 1. ``received`` may hold more names than the updates. ValueError where there are
        too few of them for the rule.
        """
        raise NotImplementedError


def by_name(updates: Sequence[Tensors]) -> dict[str, Tensor]:
    """Every tensor of all updates, stacked in float64: (K, …)."""
    return {name: torch.stack([update[name].to(torch.float64) for update in updates]) for name in updates[0]}


def flat(tensors: Tensors) -> Tensor:
    """All entries in one float64 vector, tensors in the order of their names."""
    return torch.cat([tensors[name].to(torch.float64).flatten() for name in sorted(tensors)])


def like(first: Tensors, combined: dict[str, Tensor]) -> Tensors:
    """The combined tensors in the updates' own types."""
    return {name: tensor.to(first[name].dtype) for name, tensor in combined.items()}
