"""SAP's gradients on CLIP equal those of an independent float64 evaluation, and finite differences."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from adapters_store.personal.vision_lora import weight_of
from tests.floats import BACK, CLIP_IMAGE, check_close
from tests.train.small import config
from train.data import ClientData, Example, build
from train.merging.adapter import read_adapter
from train.models.alignment_gradients import ANCHORS_AT_ONCE, alignment_gradients
from train.models.clip import ResidentClip
from train.models.vision_lora import VisionLoraOptions, initial_vision_lora
from train.tensors import Tensors

pytestmark = pytest.mark.numeric

STEP = 1e-5  # of finite differences


@pytest.fixture(scope="module")
def client() -> ClientData:
    return build(config("promptfl").data, 0)[0]


@pytest.fixture(scope="module")
def tensors(clip: ResidentClip) -> Tensors:
    """Factors of all four linears, none of them zero."""
    options = VisionLoraOptions(rank=2, alpha=4, targets=("in_proj", "out_proj", "c_fc", "c_proj"))
    random = torch.Generator().manual_seed(3)
    start = initial_vision_lora(clip, options, 0)
    return {name: tensor + 0.05 * torch.randn(tensor.shape, generator=random) for name, tensor in start.items()}


class Reference:
    """L_align in float64 by open_clip alone, over copies of the weights; nothing of ours in its forward."""

    def __init__(self, clip: ResidentClip, anchors: list[Example]) -> None:
        self.model = copy.deepcopy(clip.clip.model).double()
        self.frozen = {name: p.detach().clone() for name, p in self.model.visual.named_parameters()}  # type: ignore[union-attr]
        self.pixels = clip.pixels([anchor.image for anchor in anchors]).double()
        tokens = clip.clip.tokenise([anchor.answer for anchor in anchors])
        self.texts = self.model.encode_text(tokens)  # type: ignore[operator]

    @torch.no_grad()
    def value(self, deltas: dict[str, Tensor]) -> float:
        return float(self.loss(deltas))

    def loss(self, deltas: dict[str, Tensor]) -> Tensor:
        """With ΔW (d_out, d_in) of each of PEFT's modules."""
        for module, delta in deltas.items():
            parameter = self.model.visual.get_parameter(weight_of(module))  # type: ignore[union-attr]
            parameter.data.copy_(self.frozen[weight_of(module)] + delta)
        images = self.model.encode_image(self.pixels)  # type: ignore[operator]
        return (1 - F.cosine_similarity(images, self.texts)).mean()

    def gradients(self, deltas: dict[str, Tensor]) -> dict[str, Tensor]:
        """∂L/∂ΔW of each module, by autograd of the plain model."""
        weights = {m: self.model.visual.get_parameter(weight_of(m)) for m in deltas}  # type: ignore[union-attr]
        for weight in weights.values():
            weight.requires_grad_()
        return dict(zip(weights, torch.autograd.grad(self.loss(deltas), list(weights.values())), strict=True))


@pytest.fixture(scope="module")
def anchors(client: ClientData) -> list[Example]:
    """More than are encoded at once."""
    some = (client.train + client.test)[: ANCHORS_AT_ONCE + 3]
    return [replace(example, answer=f"a photo of a {example.answer}.") for example in some]


@pytest.fixture(scope="module")
def reference(clip: ResidentClip, anchors: list[Example]) -> Reference:
    return Reference(clip, anchors)


def test_gradients_of_factors_are_float64s_and_finite_differences(
    clip: ResidentClip, tensors: Tensors, anchors: list[Example], reference: Reference
) -> None:
    adapter = {module: (b.double(), a.double()) for module, (b, a) in read_adapter(tensors, 2.0).items()}
    found = alignment_gradients(clip, tensors, 2.0, anchors, "factors")
    assert list(found) == list(adapter)
    for module, gradient in reference.gradients({module: b @ a for module, (b, a) in adapter.items()}).items():
        b, a = adapter[module]
        check_close(found[module][0], gradient @ a.T, BACK * CLIP_IMAGE)
        check_close(found[module][1], b.T @ gradient, BACK * CLIP_IMAGE)
    ways = {module: (way(b), way(a)) for module, (b, a) in adapter.items()}

    def moved(by: float) -> float:
        return reference.value({m: (b + by * ways[m][0]) @ (a + by * ways[m][1]) for m, (b, a) in adapter.items()})

    slope = sum(float((g * w).sum()) for m in found for g, w in zip(found[m], ways[m], strict=True))
    assert slope == pytest.approx((moved(STEP) - moved(-STEP)) / (2 * STEP), rel=1e-3)


def test_gradients_of_products_are_float64s_and_finite_differences(
    clip: ResidentClip, tensors: Tensors, anchors: list[Example], reference: Reference
) -> None:
    deltas = {module: b.double() @ a.double() for module, (b, a) in read_adapter(tensors, 2.0).items()}
    found = alignment_gradients(clip, tensors, 2.0, anchors, "delta")
    assert list(found) == list(deltas)
    for module, one in reference.gradients(deltas).items():
        check_close(found[module], one, BACK * CLIP_IMAGE)
    ways = {module: way(delta) for module, delta in deltas.items()}

    def moved(by: float) -> float:
        return reference.value({module: delta + by * ways[module] for module, delta in deltas.items()})

    slope = sum(float((found[module] * ways[module]).sum()) for module in found)
    assert slope == pytest.approx((moved(STEP) - moved(-STEP)) / (2 * STEP), rel=1e-3)


def way(like: Tensor) -> Tensor:
    """A random direction."""
    return torch.randn(like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(like.numel()))
