"""Learned prompts against open_clip's own text encoder."""

import pytest
import torch

from adapters_store.personal.prompt import PromptedText, prompt_width, word_prompt
from tests.floats import CLIP_TEXT, check_close
from train.models.clip import PromptClassifier, ResidentClip, ZeroShotClassifier

pytestmark = pytest.mark.numeric

CLASSES = ["star", "red ring", "moon"]


def test_a_prompt_of_words_gives_the_words_own_features(clip: ResidentClip) -> None:
    """v = the embeddings of “a photo of a” must give what open_clip says of “a photo of a star.”"""
    prompt = word_prompt(clip.clip, "a photo of a")
    texts = PromptedText(clip.clip, CLASSES, "{class}.", prompt.shape[0])
    plain = clip.clip.text_features([f"a photo of a {name}." for name in CLASSES])
    check_close(texts.features(prompt), plain, CLIP_TEXT)


def test_gradients_reach_every_vector(clip: ResidentClip) -> None:
    prompt = (0.02 * torch.randn(4, prompt_width(clip.clip))).requires_grad_()
    texts = PromptedText(clip.clip, CLASSES, "{class}.", 4)
    (texts.features(prompt)[0] @ torch.randn(texts.features(prompt).shape[1])).backward()
    assert prompt.grad is not None
    assert (prompt.grad.abs().sum(dim=1) > 0).all()


def test_a_prompt_too_long_for_the_tower_is_refused(clip: ResidentClip) -> None:
    with pytest.raises(ValueError, match=r"prompt\.length: 500 vectors .* at most \d+ are allowed"):
        PromptedText(clip.clip, CLASSES, "{class}.", 500)


def test_word_prompt_and_zero_shot_agree(clip: ResidentClip) -> None:
    from tests.train.small import config
    from train.data import build

    client = build(config("promptfl").data, 0)[0]
    words = clip.zero_shot_template.split(" {class}")[0]
    zero = ZeroShotClassifier(clip, client.class_names)
    prompted = PromptClassifier(clip, client.class_names, word_prompt(clip.clip, words))
    assert prompted.answer(client.test) == zero.answer(client.test)
