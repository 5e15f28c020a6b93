"""Learned prompts on every kind of text tower: the shared prefix changes nothing but the time it takes."""

from typing import Any

import open_clip
import pytest
import torch
from open_clip.model import CustomTextCLIP

from adapters_store.personal.clip import Clip
from adapters_store.personal.prompt import PromptedText, prompt_width, word_prompt
from adapters_store.pictures.transform import ImageTransform
from tests.floats import BACK, block, check_close

pytestmark = pytest.mark.numeric

TERMS = 3 * block(64, 16, 24, 256) + 64  # additions in the tower below
NAMES = ["cat", "big dog", "a tabby cat on the mat"]
VISION = {"layers": 1, "width": 64, "image_size": 32, "patch_size": 16}
TRANSFORM = ImageTransform(size=32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def tower(**text: Any) -> Clip:
    torch.manual_seed(3)
    config = {"context_length": 24, "vocab_size": 49408, "width": 64, "heads": 4, "layers": 3, **text}
    model = CustomTextCLIP(64, VISION, config).eval().requires_grad_(False)  # type: ignore[arg-type]
    return Clip(model, open_clip.SimpleTokenizer(context_length=24), TRANSFORM)


SHARING = {"plain": {}, "layer scale": {"ls_init_value": 0.1}, "end id": {"pool_type": "eos", "eos_id": 49407}}
NOT_SHARING = {"not causal": {"no_causal_mask": True, "pool_type": "last"}, "other blocks": {"qk_norm": True}}


@pytest.mark.parametrize("kind", [*SHARING, *NOT_SHARING])
def test_the_words_own_embeddings_give_the_towers_own_features(kind: str) -> None:
    clip = tower(**{**SHARING, **NOT_SHARING}[kind])
    texts = PromptedText(clip, NAMES, "{class}.", 4)
    assert texts.shares_prefix == (kind in SHARING)
    expected = clip.text_features([f"a photo of a {name}." for name in NAMES])
    found = texts.features(word_prompt(clip, "a photo of a"))
    check_close(found, expected, TERMS)


@pytest.mark.parametrize("kind", SHARING)
def test_shared_and_plain_agree_in_outputs_and_gradients(kind: str) -> None:
    clip = tower(**SHARING[kind])
    texts = PromptedText(clip, NAMES, "{class}.", 5)
    random = torch.Generator().manual_seed(0)
    prompts = (0.05 * torch.randn(2, 5, prompt_width(clip), generator=random)).requires_grad_()
    weight = torch.randn(2, len(NAMES), 64, generator=random)
    results = []
    for path in (texts.features, texts.plain_features):
        features = path(prompts)
        (gradient,) = torch.autograd.grad((features * weight).sum(), prompts)
        results.append((features.detach(), gradient))
    (fast, fast_gradient), (plain, plain_gradient) = results
    check_close(fast, plain, TERMS)
    check_close(fast_gradient, plain_gradient, BACK * TERMS)
    check_close(texts.features(prompts[0]), fast[0], TERMS)  # one prompt, no batch


def test_a_prompt_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"prompt.length: 20 vectors .* at most \d+ are allowed"):
        PromptedText(tower(), NAMES, "{class}.", 20)


def test_a_tower_that_prompts_cannot_enter_is_refused() -> None:
    with pytest.raises(ValueError, match="learned prompts need an open_clip text transformer"):
        PromptedText(tower(embed_cls=True), NAMES, "{class}.", 2)
