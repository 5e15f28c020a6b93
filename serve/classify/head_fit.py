"""Whether the tensors of a ``prompt.safetensors`` make a head over the base they are loaded over.

torch would broadcast some wrong shapes, and fail at others in the middle of somebody's answer.

Letters: M prompt vectors, W width of the text tower, E experts, n cached examples, D joint embedding width, C classes.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from adapters_store.personal.gate import Gate

LABELS = "memory.labels"


def check_head(tensors: Mapping[str, Tensor], width: int, features: int, classes: int) -> None:
    """ValueError with one sentence unless the tensors are one whole head for W, D and C: ``width``, ``features``, …"""
    wanted = _wanted(tensors, width, features)
    for name in sorted(wanted.keys() - tensors.keys()):
        raise ValueError(f"tensor {name} of prompt.safetensors is missing")
    for name in sorted(tensors.keys() - wanted.keys()):
        raise ValueError(f"tensor {name} of prompt.safetensors belongs to no classifier that has the others in it")
    for name, tensor in sorted(tensors.items()):
        if tuple(tensor.shape) != wanted[name]:
            raise ValueError(f"tensor {name} has shape {list(tensor.shape)} where the base needs {list(wanted[name])}")
        if tensor.dtype != torch.int64 if name == LABELS else not tensor.is_floating_point():
            raise ValueError(f"tensor {name} is {tensor.dtype}, which is no type it can be of")
    if LABELS in tensors and not bool(((tensors[LABELS] >= 0) & (tensors[LABELS] < classes)).all()):
        raise ValueError(f"tensor {LABELS} holds a label that is none of the {classes} classes, 0 to {classes - 1}")


def _wanted(tensors: Mapping[str, Tensor], width: int, features: int) -> dict[str, tuple[int, ...]]:
    """Shape by name of the head that these tensors are meant to be: with a gate, with a memory, or a prompt alone."""
    length = _rows(tensors, "prompt")
    wanted: dict[str, tuple[int, ...]] = {"prompt": (length, width)}
    if any(name in ("others", "mixing") or name.startswith("gate.") for name in tensors):
        gate = {f"gate.{name}": tuple(tensor.shape) for name, tensor in Gate(features).state_dict().items()}
        wanted |= {"mixing": (), **gate}
        wanted |= {"others": (_rows(tensors, "others"), length, width)} if "others" in tensors else {}
    elif any(name.startswith("memory.") for name in tensors):
        examples = _rows(tensors, "memory.features")
        wanted |= {"memory.features": (examples, features), LABELS: (examples,), "memory.weights": (2,)}
    return wanted


def _rows(tensors: Mapping[str, Tensor], name: str) -> int:
    """The tensor's first axis, which is its own affair; at least 1."""
    return max(tensors[name].shape[0], 1) if name in tensors and tensors[name].ndim else 1
