"""Random adapters in float64, and their dense products in numpy for evaluations that share no code with ours."""

import numpy as np
import torch
from numpy.typing import NDArray

from train.lowrank import Factors

SHAPES = {"block.10.attn": (6, 5), "block.2.attn": (4, 9), "block.2.attn.out": (7, 3)}
Dense = NDArray[np.float64]


def adapter(seed: int, rank: int = 2) -> dict[str, Factors]:
    random = torch.Generator().manual_seed(seed)
    return {module: draw(random, d_out, d_in, rank) for module, (d_out, d_in) in SHAPES.items()}


def draw(random: torch.Generator, d_out: int, d_in: int, rank: int) -> Factors:
    b = torch.randn(d_out, rank, generator=random, dtype=torch.float64)
    return b, torch.randn(rank, d_in, generator=random, dtype=torch.float64)


def dense(factors: Factors) -> Dense:
    b, a = factors
    product: Dense = b.numpy() @ a.numpy()
    return product
