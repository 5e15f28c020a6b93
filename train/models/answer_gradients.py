"""SAP's gradients on a LLaVA (docs/methods.md#sap): how the loss of public anchors' answers changes with an adapter."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, overload

import torch
from torch import Tensor

from train.data import Example
from train.lowrank import Factors
from train.merging.adapter import A, B
from train.models.lora import PEFT_NAME, LoraOptions, LoraPersonal
from train.models.mllm import Mllm
from train.tensors import Tensors

ANCHORS_AT_ONCE = 16


@overload
def answer_gradients(
    mllm: Mllm, lora: LoraOptions, tensors: Tensors, anchors: Sequence[Example], space: Literal["factors"]
) -> dict[str, Factors]: ...
@overload
def answer_gradients(
    mllm: Mllm, lora: LoraOptions, tensors: Tensors, anchors: Sequence[Example], space: Literal["delta"]
) -> dict[str, Tensor]: ...
def answer_gradients(
    mllm: Mllm, lora: LoraOptions, tensors: Tensors, anchors: Sequence[Example], space: Literal["factors", "delta"]
) -> dict[str, Factors] | dict[str, Tensor]:
    """Gradients of the anchors' answer loss, by module as ``read_adapter`` names them: of the factors (B, A) that it
    gives, or of each BA (d_out, d_in). The loss is the mean over batches of at most 16 anchors, weighted by their size.
    """
    personal = LoraPersonal(mllm, lora, tensors)
    for parameter in personal.parameters.values():
        parameter.requires_grad_(True)
        parameter.grad = None
    with _dense_gradients(personal, space == "delta") as dense:
        for i in range(0, len(anchors), ANCHORS_AT_ONCE):
            some = anchors[i : i + ANCHORS_AT_ONCE]
            loss = personal.outputs(personal.prepare(some), range(len(some))).loss
            torch.autograd.backward(loss * (len(some) / len(anchors)))
    gradients = {name: _taken(parameter) for name, parameter in personal.parameters.items()}
    if space == "delta":
        return dense
    scale = lora.alpha / lora.rank
    modules = [name.removesuffix(A) for name in gradients if name.endswith(A)]
    return {module: (gradients[module + B] / scale, gradients[module + A]) for module in modules}


@contextmanager
def _dense_gradients(personal: LoraPersonal, wanted: bool) -> Iterator[dict[str, Tensor]]:
    """∂L/∂ΔW = Σ (∂L/∂y) xᵀ over every input x and output y of a module, gathered while gradients are computed."""
    found: dict[str, Tensor] = {}
    hooks = []
    for name, module in _adapted_linears(personal).items() if wanted else ():
        hooks.append(module.register_forward_hook(_gatherer(found, name)))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _gatherer(found: dict[str, Tensor], name: str) -> Any:
    def gather(module: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        given = inputs[0].detach().flatten(0, -2).float()

        def add(gradient: Tensor) -> None:
            product = (gradient.flatten(0, -2).float().T @ given).cpu()  # where the adapters are
            found[name] = found[name] + product if name in found else product

        output.register_hook(add)

    return gather


def _adapted_linears(personal: LoraPersonal) -> Mapping[str, Any]:
    assert personal.adapted is not None
    named = personal.adapted.named_modules()
    return {name: module for name, module in named if PEFT_NAME in getattr(module, "lora_A", ())}


def _taken(parameter: torch.nn.Parameter) -> Tensor:
    """The gradient, which the parameter no longer has afterwards."""
    assert parameter.grad is not None
    gradient, parameter.grad = parameter.grad.detach().cpu(), None
    return gradient
