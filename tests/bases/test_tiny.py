"""The committed base: its formats, its size, and that it is as good (and as bad) as it should be."""

import json
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from safetensors import safe_open
from transformers import AutoProcessor, PreTrainedTokenizerFast

from tests.floats import CLIP_IMAGE, CLIP_TEXT, SOFT_TOKENS, check_close
from train.data.federation import Example
from train.data.world.questions import TEXT_TURNS
from train.data.world.vocabulary import COLOURS, HELD_OUT_STYLES, PUBLIC_STYLES, SHAPES
from train.pretraining.card import FLOORS, HELD_OUT_CEILING, NF4_CEILING
from train.pretraining.clip import encode
from train.pretraining.evaluation import (
    Reader,
    answer_scores,
    class_features,
    handwriting_accuracy,
    image_features,
    joint_accuracy,
    load_reader,
    public_questions,
)
from train.pretraining.export import load_clip
from train.pretraining.tokenizer import world_words

BASE = Path(__file__).parents[2] / "bases" / "tiny"
CLIP_KEYS = ("joint_public", "digits_rendered", "digits_handwritten")
SAMPLE = 60
"""Questions a task asked here; evaluation.json holds the full measurement."""
SAMPLING_ERROR = 0.03
"""What so few questions may be off."""


@pytest.fixture(scope="module")
def clip() -> open_clip.CLIP:
    return load_clip(BASE / "clip")


@pytest.fixture(scope="module")
def reader() -> Reader:
    return load_reader(BASE / "llava")


@pytest.fixture(scope="module")
def questions() -> list[Example]:
    return public_questions(SAMPLE)


@pytest.fixture(scope="module")
def measured(reader: Reader, questions: list[Example]) -> dict[str, float]:
    return {kind: float(np.mean(values)) for kind, values in answer_scores(reader, questions).items()}


def test_size_and_precision() -> None:
    assert sum(path.stat().st_size for path in BASE.rglob("*") if path.is_file()) <= 30e6
    for path in BASE.rglob("*.safetensors"):
        with safe_open(path, "pt") as stored:
            tensors = [stored.get_tensor(name) for name in stored.keys()]  # noqa: SIM118 (not a dict)
        assert {tensor.dtype for tensor in tensors} == {torch.float16}
        assert all(tensor.isfinite().all() for tensor in tensors)
    assert not [path for path in BASE.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]


@pytest.mark.numeric
def test_open_clip_loads_it_and_agrees(clip: open_clip.CLIP) -> None:
    model, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{BASE / 'clip'}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{BASE / 'clip'}")
    texts = tokenizer(["a photo of a red star.", "a photo of a blue seven."])
    assert texts.shape == (2, 32)
    assert torch.equal(texts.argmax(1), (texts == 703).int().argmax(1))  # the end token has the highest id
    with torch.no_grad():
        expected = model.encode_text(texts, normalize=True)
        check_close(class_features(clip, ["red star", "blue seven"]), expected, CLIP_TEXT)
        images = torch.rand(3, 3, 64, 64)
        mean_removed = (images - 0.5) / 0.5
        expected = model.encode_image(mean_removed, normalize=True)
    check_close(image_features(clip, images), expected, CLIP_IMAGE)
    from PIL import Image

    assert preprocess(Image.new("RGB", (100, 80))).shape == (3, 64, 64)


@pytest.mark.numeric
def test_the_llava_sees_through_that_clip(clip: open_clip.CLIP, reader: Reader) -> None:
    pixels = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        patches, _ = encode(clip.visual, pixels)
        soft = reader.model.model.multi_modal_projector(patches)
        theirs = reader.model.get_image_features(pixel_values=pixels).pooler_output
    check_close(torch.stack(list(theirs)), soft, SOFT_TOKENS)
    assert soft.shape == (2, 64, 256)


def test_checkpoint_names_are_the_hubs() -> None:
    with safe_open(BASE / "llava" / "model.safetensors", "pt") as stored:
        names = set(stored.keys())
    for name in (
        "vision_tower.vision_model.embeddings.class_embedding",
        "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight",
        "multi_modal_projector.linear_1.weight",
        "language_model.model.embed_tokens.weight",
        "language_model.model.layers.3.mlp.down_proj.weight",
    ):
        assert name in names


@pytest.mark.parametrize("content", ["string", "parts"])
def test_chat_template_and_processor(content: str) -> None:
    processor = AutoProcessor.from_pretrained(BASE / "llava")
    parts = [{"type": "text", "text": "Where is it?"}, {"type": "image"}]
    message = {"role": "user", "content": "Where is it?" if content == "string" else parts}
    text = processor.apply_chat_template([message], add_generation_prompt=True)
    image = "" if content == "string" else "<image>"
    assert text == f"<s>USER: {image}Where is it? ASSISTANT:"
    inputs = processor(text=text, images=None if content == "string" else np.zeros((80, 100, 3), np.uint8))
    ids = inputs["input_ids"][0]
    assert [ids.count(1), ids.count(3)] == [1, 0 if content == "string" else 64]
    answered = processor.apply_chat_template([message, {"role": "assistant", "content": "top left"}])
    assert answered == f"<s>USER: {image}Where is it? ASSISTANT: top left</s>"


def test_tokenizer_round_trip() -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(BASE / "llava")
    for text in ("a red star, a blue ring and an orange moon", "box 0 12 63 40", "yes", "zebra crossing", "naïve?"):
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids) == text
    assert all(len(tokenizer(word)["input_ids"]) == 1 for word in world_words())
    assert tokenizer("What  COLOUR\nis it?")["input_ids"] == tokenizer("what colour is it?")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(703) == tokenizer.eos_token == "</s>"


def test_clip_floors(clip: open_clip.CLIP) -> None:
    scores = [joint_accuracy(clip, style, 160) for style in PUBLIC_STYLES]
    assert np.mean([joint for joint, _ in scores]) >= FLOORS["joint_public"][0]
    assert np.mean([digit for _, digit in scores]) >= FLOORS["digits_rendered"][0]
    assert handwriting_accuracy(clip) >= FLOORS["digits_handwritten"][0]


def test_held_out_styles_leave_room(clip: open_clip.CLIP) -> None:
    assert np.mean([joint_accuracy(clip, style, 80)[0] for style in HELD_OUT_STYLES]) <= HELD_OUT_CEILING
    assert handwriting_accuracy(clip) <= 0.9


@pytest.mark.parametrize("kind", [kind for kind in FLOORS if kind not in CLIP_KEYS])
def test_llava_floors(measured: dict[str, float], kind: str) -> None:
    assert measured[kind] >= FLOORS[kind][0] - SAMPLING_ERROR


def test_nf4_costs_little(measured: dict[str, float], questions: list[Example]) -> None:
    scores = answer_scores(load_reader(BASE / "llava", nf4=True), questions)
    cost = {kind: measured[kind] - float(np.mean(values)) for kind, values in scores.items()}
    assert np.mean(list(cost.values())) <= NF4_CEILING / 2
    assert max(cost.values()) <= NF4_CEILING + 1 / SAMPLE  # one answer of this small sample


def test_the_committed_evaluation_holds() -> None:
    results = json.loads((BASE / "evaluation.json").read_text())
    for kind, (floor, _) in FLOORS.items():
        assert (results["clip"] if kind in CLIP_KEYS else results["llava"]["public"])[kind] >= floor
    assert results["clip"]["joint_held_out"] <= HELD_OUT_CEILING
    assert max(results["llava"]["nf4_cost"].values()) <= NF4_CEILING


def test_the_card_names_what_made_it() -> None:
    training = json.loads((BASE / "training.json").read_text())
    card = (BASE / "README.md").read_text()
    for stage in ("clip", "llava"):
        for field in ("command", "seed", "minutes", "hardware"):
            assert str(training[stage][field]) in card


def test_simple_questions_without_an_image(reader: Reader) -> None:
    right = 0
    for question, answer in TEXT_TURNS:
        ids = reader.tokenizer(
            reader.prompt(question, with_image=False), return_tensors="pt", add_special_tokens=False
        )["input_ids"]
        made = reader.model.generate(input_ids=ids, max_new_tokens=40, do_sample=False)[0, ids.shape[1] :]
        right += reader.tokenizer.decode(made, skip_special_tokens=True) == answer
    assert right >= 0.9 * len(TEXT_TURNS)
    assert (len(SHAPES), len(COLOURS)) == (10, 8)
