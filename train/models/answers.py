"""What a LLaVA says of anchors with an adapter from anywhere: its gradients, for SAP, its own words, for ATAF's α.

Letters: T answer tokens of all anchors, C vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from train.data import Example
from train.lowrank import Factors
from train.merging.adapter import A, Adapter, write_adapter
from train.models.answer_gradients import answer_gradients
from train.models.interfaces import Personal
from train.models.lora import LoraOptions, LoraPersonal, adapt_, lora_parameters
from train.models.mllm import Mllm
from train.tensors import Tensors

AT_ONCE = 8  # anchors; bounds the logits and activations of a pass


def factor_gradients(mllm: Mllm, adapter: Adapter, anchors: Sequence[Example]) -> dict[str, Factors]:
    """∂(answer loss)/∂(B, A) by module, at the adapter's own rank."""
    gradients = answer_gradients(mllm, *fitted(mllm, adapter), anchors, "factors")
    return {m: (gradients[m][0][:, : len(a)], gradients[m][1][: len(a)]) for m, (_, a) in adapter.items()}


def delta_gradients(mllm: Mllm, adapter: Adapter, anchors: Sequence[Example]) -> dict[str, Tensor]:
    """∂(answer loss)/∂(BA) (d_out, d_in) by module."""
    gradients = answer_gradients(mllm, *fitted(mllm, adapter), anchors, "delta")
    return {module: gradients[module] for module in adapter}


@torch.no_grad()
def answer_logits(mllm: Mllm, anchors: Sequence[Example], adapter: Adapter | None = None) -> Tensor:
    """(T, C) next-token logits where each token of the anchors' answers is to come, with the adapter or the base's."""
    personal: Personal = _with(mllm, adapter)
    given: list[Tensor] = []
    hook = mllm.model.lm_head.register_forward_hook(lambda _, __, logits: given.append(logits.float().cpu()))
    try:
        for i in range(0, len(anchors), AT_ONCE):
            turns = personal.prepare(anchors[i : i + AT_ONCE])
            personal.outputs(turns, range(len(anchors[i : i + AT_ONCE])))  # the head is asked at these positions alone
    finally:
        hook.remove()
    return torch.cat(given)


def answers(mllm: Mllm, anchors: Sequence[Example], adapter: Adapter | None = None) -> tuple[Example, ...]:
    """The anchors with what the model says itself, greedily, in the place of their answers."""
    said = _with(mllm, adapter).answer(anchors)
    return tuple(replace(anchor, answer=own) for anchor, own in zip(anchors, said, strict=True))


def predictions(mllm: Mllm, anchors: Sequence[Example], a: Adapter, b: Adapter) -> Callable[[Adapter], Tensor]:
    """``answer_logits`` of an adapter where a's own answers and b's are to come: unlabelled (docs/methods.md#ataf)."""
    return partial(answer_logits, mllm, (*answers(mllm, anchors, a), *answers(mllm, anchors, b)))


def _with(mllm: Mllm, adapter: Adapter | None) -> LoraPersonal:
    return LoraPersonal(mllm, *((None, {}) if adapter is None else fitted(mllm, adapter)))


def fitted(mllm: Mllm, adapter: Adapter) -> tuple[LoraOptions, Tensors]:
    """The adapter in one rank and scale 1, as the resident base takes it: what it lacks is zero.

    Raises ValueError in one sentence where the base's language model has no such linear, or one of another shape.
    """
    rank = max(len(a) for _, a in adapter.values())
    targets = tuple(sorted({module.rpartition(".")[2] for module in adapter}))
    options = LoraOptions(rank=rank, alpha=rank, targets=targets)
    try:
        parameters = lora_parameters(adapt_(mllm, options))
    except ValueError as error:  # PEFT's own where no linear has such a name
        raise ValueError(f"--base: its language model has no linear named {' or '.join(targets)}") from error
    tensors = {name: torch.zeros(parameter.shape) for name, parameter in parameters.items()}
    for name, tensor in write_adapter(adapter).items():
        if name not in tensors:
            raise ValueError(f"{name}: the base's language model has no linear of this name")
        side = 1 if name.endswith(A) else 0  # the one that is not the rank
        if tensor.shape[side] != tensors[name].shape[side]:
            raise ValueError(f"{name}: {tensor.shape[side]} wide where the base has {tensors[name].shape[side]}")
        tensors[name][: tensor.shape[0], : tensor.shape[1]] = tensor
    return options, tensors
