"""A LoRA on the vision tower trains, is published as it was evaluated, and has the gradients of L_align."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from adapters_store.personal.vision_lora import read_vision_lora, weight_of
from tests.train.small import config
from train.data import ClientData, Example, build
from train.merging.adapter import read_adapter
from train.models.clip import ResidentClip, ZeroShotClassifier
from train.models.vision_lora import (
    ANCHORS_AT_ONCE,
    VisionLoraOptions,
    VisionLoraPersonal,
    alignment_gradients,
    initial_vision_lora,
    vision_lora_artefact,
)
from train.privacy import example_gradients
from train.tensors import Tensors

OPTIONS = VisionLoraOptions(rank=2, alpha=4)
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


def test_it_starts_as_the_base(clip: ResidentClip, client: ClientData) -> None:
    start = initial_vision_lora(clip, OPTIONS, 0)
    assert all(torch.equal(start[name], tensor) for name, tensor in initial_vision_lora(clip, OPTIONS, 0).items())
    assert any(not torch.equal(start[name], t) for name, t in initial_vision_lora(clip, OPTIONS, 1).items())
    logits = VisionLoraPersonal(clip, OPTIONS.scale, client.class_names, start).logits(client.test)
    expected = ZeroShotClassifier(clip, client.class_names).head().logits(clip.features(client.test))
    assert torch.allclose(logits, expected, atol=1e-4)


def test_training_lowers_the_loss_and_moves_every_factor(clip: ResidentClip, client: ClientData) -> None:
    personal = VisionLoraPersonal(clip, OPTIONS.scale, client.class_names, initial_vision_lora(clip, OPTIONS, 0))
    before = {name: parameter.detach().clone() for name, parameter in personal.parameters.items()}
    prepared, rows = personal.prepare(client.train), range(8)
    steps = torch.optim.AdamW(personal.parameters.values(), lr=3e-3)
    losses = []
    for _ in range(6):
        steps.zero_grad()
        out = personal.outputs(prepared, rows)
        out.loss.backward()
        steps.step()
        losses.append(out.loss.item())
    assert out.extras["losses"].mean().item() == pytest.approx(losses[-1])
    assert losses[-1] < 0.7 * losses[0]
    assert all(not torch.equal(before[name], parameter) for name, parameter in personal.parameters.items())


def test_augmented_images_are_drawn_anew(clip: ResidentClip, client: ClientData) -> None:
    personal = VisionLoraPersonal(clip, OPTIONS.scale, client.class_names, initial_vision_lora(clip, OPTIONS, 0))
    prepared = personal.prepare(client.train, torch.Generator().manual_seed(0))
    assert not torch.equal(prepared.batch([0, 1]), prepared.batch([0, 1]))
    assert torch.equal(prepared.labels, personal.prepare(client.train).labels)


def test_every_example_has_a_gradient_of_its_own(clip: ResidentClip, client: ClientData, tensors: Tensors) -> None:
    personal = VisionLoraPersonal(clip, 2.0, client.class_names, tensors)
    prepared, parameters = personal.prepare(client.train[:3]), list(personal.parameters.values())
    found = example_gradients(personal.outputs(prepared, range(3)).extras["losses"], parameters)
    alone = torch.autograd.grad(personal.outputs(prepared, [1]).loss, parameters)
    assert all(torch.allclose(every[1], one, rtol=1e-3, atol=1e-5) for every, one in zip(found, alone, strict=True))


def test_what_is_published_is_what_was_evaluated(clip: ResidentClip, client: ClientData, tensors: Tensors) -> None:
    personal = VisionLoraPersonal(clip, 2.0, client.class_names, tensors)
    artefact = vision_lora_artefact("personal", clip, client.class_names, tensors, 2.0)
    assert artefact.rank == 2
    assert artefact.target_modules == r"visual\.transformer\.resblocks\.\d+\.(attn|mlp\.c_fc|mlp\.c_proj)"
    read, scale = read_vision_lora(artefact.files)
    again = VisionLoraPersonal(clip, scale, artefact.class_names, read)
    assert torch.equal(again.logits(client.test), personal.logits(client.test))
    best = personal.logits(client.test).argmax(-1).tolist()
    assert again.answer(client.test) == [client.class_names[i] for i in best]


def test_a_lora_of_another_width_is_refused(clip: ResidentClip, client: ClientData, tensors: Tensors) -> None:
    wide = {
        name: torch.cat([tensor, tensor], dim=1) if ".lora_A" in name else tensor for name, tensor in tensors.items()
    }
    with pytest.raises(ValueError, match="where the base has"):
        VisionLoraPersonal(clip, 2.0, client.class_names, wide)


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
        assert relative(found[module][0], gradient @ a.T) < 1e-4
        assert relative(found[module][1], b.T @ gradient) < 1e-4
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
    assert all(relative(found[module], one) < 1e-4 for module, one in reference.gradients(deltas).items())
    ways = {module: way(delta) for module, delta in deltas.items()}

    def moved(by: float) -> float:
        return reference.value({module: delta + by * ways[module] for module, delta in deltas.items()})

    slope = sum(float((found[module] * ways[module]).sum()) for module in found)
    assert slope == pytest.approx((moved(STEP) - moved(-STEP)) / (2 * STEP), rel=1e-3)


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def way(like: Tensor) -> Tensor:
    """A random direction."""
    return torch.randn(like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(like.numel()))
