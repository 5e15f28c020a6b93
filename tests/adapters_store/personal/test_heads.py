"""Which head the tensors of an artefact make."""

import numpy as np
import pytest
import torch

from adapters_store.paths import resolve
from adapters_store.personal.clip import Clip, load_clip
from adapters_store.personal.gate import initial_gate
from adapters_store.personal.heads import MemoryHead, MixtureHead, TextHead, make_head, opaque_id
from adapters_store.personal.prompt import prompt_width
from tests.adapters_store.personal.test_gate import units
from tests.floats import check_close

pytestmark = pytest.mark.numeric

NAMES = ["red star", "blue ring"]


@pytest.fixture(scope="module")
def clip() -> Clip:
    return load_clip(resolve("bases/tiny/clip"))


@pytest.fixture(scope="module")
def prompts(clip: Clip) -> torch.Tensor:
    return 0.05 * torch.randn(4, 3, prompt_width(clip), generator=torch.Generator().manual_seed(2))


def images(clip: Clip, seed: int = 4) -> torch.Tensor:
    return units(5, clip.joint_width, seed=seed).float()


def test_a_prompt_alone_is_compared_with_the_image(clip: Clip, prompts: torch.Tensor) -> None:
    head = make_head(clip, {"prompt": prompts[0]}, NAMES, "{class}.")
    assert isinstance(head, TextHead)
    check_close(head.logits(images(clip)), clip.logit_scale * images(clip) @ head.text.T, clip.joint_width)


def test_non_local_prompts_bring_the_gate(clip: Clip, prompts: torch.Tensor) -> None:
    gate = {f"gate.{n}": t for n, t in initial_gate(clip.joint_width, torch.Generator().manual_seed(1)).items()}
    tensors = {"prompt": prompts[0], "others": prompts[1:], "mixing": torch.tensor(0.25), **gate}
    head = make_head(clip, tensors, NAMES, "{class}.")
    assert isinstance(head, MixtureHead)
    assert head.experts == ("own", *(opaque_id(prompt) for prompt in prompts[1:]))
    assert len(set(head.experts)) == 4
    logits, attention = head.explained(images(clip))
    assert attention.shape == (5, 2, 4)
    alone = make_head(clip, {**tensors, "mixing": torch.tensor(0.0)}, NAMES, "{class}.").logits(images(clip))
    local = 0.25 * clip.logit_scale * images(clip) @ head.text.T
    check_close(logits - alone, local, clip.joint_width, size=float(logits.norm()))


def test_a_memory_adds_the_affinities_of_each_class(clip: Clip, prompts: torch.Tensor) -> None:
    memory, labels, (a, beta) = images(clip, seed=8)[:3], torch.tensor([0, 1, 1]), (2.0, 5.5)
    tensors = {"memory.features": memory, "memory.labels": labels, "memory.weights": torch.tensor([a, beta])}
    head = make_head(clip, {"prompt": prompts[0], **tensors}, NAMES, "{class}.")
    assert isinstance(head, MemoryHead)
    one_hot = np.eye(2)[labels]
    x, f, t = (part.double().numpy() for part in (images(clip), memory, head.text))
    expected = float(clip.logit_scale) * x @ t.T + a * np.exp(-beta * (1 - x @ f.T)) @ one_hot
    check_close(head.logits(images(clip)), expected, clip.joint_width)
