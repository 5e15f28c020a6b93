"""Several processes that train together (`torchrun`): each draws its own batches, gradients are averaged.

On a CPU that is shared with other work, two processes of one thread waste less than one of two threads, which wait for
each other in every product.
"""

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn


def join() -> None:
    """Joins the other processes where torchrun started several."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")


def rank() -> int:
    """This process's number, from 0; 0 where it is alone."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def agree(value: float) -> float:
    """Process 0's value, in all of them."""
    if world() == 1:
        return value
    shared = torch.tensor([value], dtype=torch.float64)
    dist.broadcast(shared, 0)
    return float(shared)


@torch.no_grad()
def average_gradients_(module: nn.Module) -> None:
    """Replaces every gradient by its mean over the processes."""
    if world() == 1:
        return
    gradients: list[Tensor] = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    parts = flat.div_(world()).split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
