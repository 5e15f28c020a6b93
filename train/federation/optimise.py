"""Local optimisation: batches from a seed, a fresh optimiser, a schedule within one exchange."""

import math
from collections.abc import Iterator, Mapping
from typing import Final

import torch
from torch import nn

from train.methods.contract import Turn
from train.sections import ClientConfig
from train.tensors import generator

WARM_UP_RATE: Final = 1e-5
"""Rate of the first epoch under ``cosine_epochs`` (docs/methods.md#coop)."""


def step_count(config: ClientConfig, examples: int, turn: Turn) -> int:
    """Optimiser steps of this turn for a client with that many examples."""
    if turn.kind == "personal":
        return config.personal_steps
    if config.local_steps is not None:
        return config.local_steps
    assert config.local_epochs is not None  # ClientConfig holds exactly one of the two
    return config.local_epochs * math.ceil(examples / config.batch_size)


def batches(config: ClientConfig, examples: int, steps: int, seed: int, turn: Turn, client: str) -> Iterator[list[int]]:
    """Rows of each step's batch: epoch after epoch in a fresh order; the last batch of an epoch may be smaller."""
    random = generator(seed, "batches", turn.kind, turn.round, turn.exchange, client)
    rows: list[int] = []
    for _ in range(steps):
        if not rows:
            rows = torch.randperm(examples, generator=random).tolist()
        yield rows[: config.batch_size]
        rows = rows[config.batch_size :]


def optimiser(config: ClientConfig, parameters: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    """A new one, with a group for each parameter, in their order."""
    groups = [{"params": [parameter]} for parameter in parameters.values()]
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=0.9, weight_decay=config.weight_decay)
    return torch.optim.AdamW(groups, lr=config.lr, weight_decay=config.weight_decay)


def learning_rate(config: ClientConfig, turn: Turn, step: int, steps: int) -> float:
    """The rate of this step (from 0): constant, or half a cosine from the peak towards zero, by step or by epoch."""
    peak = config.personal_lr if turn.kind == "personal" and config.personal_lr is not None else config.lr
    if config.schedule == "constant":
        return peak
    if config.schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * step / steps))
    epochs = config.local_epochs if turn.kind == "train" else 1
    assert epochs is not None  # ClientConfig asks for it
    epoch = step * epochs // steps  # from 0; docs/methods.md#coop counts from 1
    if epochs == 1:
        return peak
    return WARM_UP_RATE if epoch == 0 else peak * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / epochs))
