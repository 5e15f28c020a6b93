"""SAP's gradients on CLIP: how the alignment of public anchors with their captions changes with an adapter's entries
(docs/methods.md#sap).
"""

from collections.abc import Mapping, Sequence
from typing import Literal, overload

import torch
from torch import Tensor

from adapters_store.personal.adapted_tower import Delta
from adapters_store.personal.clip import Clip
from adapters_store.personal.vision_lora import check_vision_fit, image_features, weight_of
from train.data import Example
from train.lowrank import Factors
from train.merging.adapter import read_adapter
from train.models.clip import ResidentClip
from train.tensors import Tensors

ANCHORS_AT_ONCE = 16  # bounds the activations kept: measured, 2.5 GiB over a ViT-B/16


def alignment_loss(clip: Clip, deltas: Mapping[str, Delta], pixels: Tensor, texts: Tensor) -> Tensor:
    """L_align = mean(1 − cos(V, T)) over images (n, 3, size, size) and the features (n, D) of their captions."""
    return 1 - (image_features(clip, deltas, pixels) * texts).sum(-1).mean()


@overload
def alignment_gradients(
    resident: ResidentClip, tensors: Tensors, scale: float, anchors: Sequence[Example], space: Literal["factors"]
) -> dict[str, Factors]: ...
@overload
def alignment_gradients(
    resident: ResidentClip, tensors: Tensors, scale: float, anchors: Sequence[Example], space: Literal["delta"]
) -> dict[str, Tensor]: ...
def alignment_gradients(
    resident: ResidentClip,
    tensors: Tensors,
    scale: float,
    anchors: Sequence[Example],
    space: Literal["factors", "delta"],
) -> dict[str, Factors] | dict[str, Tensor]:
    """Gradients of SAP's L_align over the anchors' images and captions (``answer``), docs/methods.md#sap.

    By module, as ``read_adapter`` names them: of the factors (B, A) that it gives, or of each dense BA (d_out, d_in).
    """
    adapter = read_adapter({name: tensor.to(resident.device) for name, tensor in tensors.items()}, scale)
    check_vision_fit(resident.clip, {weight_of(module): factors for module, factors in adapter.items()})
    if space == "delta":
        dense = {module: (b @ a).requires_grad_() for module, (b, a) in adapter.items()}
        _backward(resident, dense, anchors)
        return {module: _gradient(delta) for module, delta in dense.items()}
    leaves = {module: (b.clone().requires_grad_(), a.clone().requires_grad_()) for module, (b, a) in adapter.items()}
    _backward(resident, leaves, anchors)
    return {module: (_gradient(b), _gradient(a)) for module, (b, a) in leaves.items()}


def _backward(resident: ResidentClip, leaves: Mapping[str, Delta], anchors: Sequence[Example]) -> None:
    """Adds the gradients of L_align to the leaves, a few anchors at a time."""
    deltas = {weight_of(module): delta for module, delta in leaves.items()}
    for i in range(0, len(anchors), ANCHORS_AT_ONCE):
        some = anchors[i : i + ANCHORS_AT_ONCE]
        pixels = resident.pixels([anchor.image for anchor in some])
        texts = resident.clip.text_features([anchor.answer for anchor in some])
        loss = alignment_loss(resident.clip, deltas, pixels, texts) * (len(some) / len(anchors))
        torch.autograd.backward(loss)


def _gradient(leaf: Tensor) -> Tensor:
    assert leaf.grad is not None
    return leaf.grad.cpu()  # where the adapters are
