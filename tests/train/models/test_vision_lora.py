"""A LoRA on the vision tower trains, and is published as it was evaluated."""

import json

import pytest
import torch

from adapters_store.personal.vision_lora import read_vision_lora
from tests.floats import BACK, CLIP_LOGITS, check_close
from tests.train.small import config
from train.data import ClientData, build
from train.models.clip import ResidentClip, ZeroShotClassifier
from train.models.vision_lora import (
    VisionLoraOptions,
    VisionLoraPersonal,
    initial_vision_lora,
    vision_lora_artefact,
)
from train.privacy.dp_sgd import example_gradients
from train.tensors import Tensors

pytestmark = pytest.mark.numeric

OPTIONS = VisionLoraOptions(rank=2, alpha=4)


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
    check_close(logits, expected, CLIP_LOGITS)


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
    for every, one in zip(found, alone, strict=True):
        check_close(every[1], one, BACK * CLIP_LOGITS)


def test_what_is_published_is_what_was_evaluated(clip: ResidentClip, client: ClientData, tensors: Tensors) -> None:
    personal = VisionLoraPersonal(clip, 2.0, client.class_names, tensors)
    artefact = vision_lora_artefact("personal", clip, client.class_names, tensors, 2.0)
    assert artefact.rank == 2
    blocks = len(clip.clip.model.visual.transformer.resblocks)
    names = [
        f"visual.transformer.resblocks.{i}.{end}" for i in range(blocks) for end in ("attn", "mlp.c_fc", "mlp.c_proj")
    ]
    assert artefact.target_modules == json.loads(artefact.files["adapter_config.json"])["target_modules"] == names
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
