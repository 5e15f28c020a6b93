"""How good the embedded base is: zero-shot CLIP and LLaVA answers, per style and task, with and without NF4.

All data are the test splits of embedded federations with a seed that nothing else uses; nothing is tuned on them.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from open_clip import CLIP
from torch import Tensor
from transformers import LlavaForConditionalGeneration, PreTrainedTokenizerFast

from train.data import DataConfig, Example, build, score
from train.data.world.handwriting import load_handwriting
from train.data.world.questions import TASKS
from train.data.world.render import render
from train.data.world.scenes import single_objects
from train.data.world.vocabulary import (
    COLOURS,
    DIGITS,
    GLYPHS,
    HELD_OUT_STYLES,
    PROMPT_TEMPLATE,
    PUBLIC_STYLES,
    SHAPES,
    STYLES,
    object_name,
)
from train.pretraining.clip import encode, encode_texts, normalise
from train.pretraining.export import load_clip
from train.pretraining.tokenizer import make_tokenizer

SEED: Final = 20_261_121
"""Of all evaluation data."""
LAYER_LINEAR: Final = re.compile(r"language_model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj$")
"""What NF4 quantises: the language model's layer linears."""
BATCH: Final = 64
MAX_NEW_TOKENS: Final = 24


# --- CLIP


@torch.no_grad()
def image_features(model: CLIP, images: Tensor) -> Tensor:
    """(N, 128) unit features of pictures (N, 3, 64, 64) in 0–1."""
    parts = [encode(model.visual, normalise(part))[1] for part in images.split(256)]
    return F.normalize(torch.cat(parts), dim=-1)


@torch.no_grad()
def class_features(model: CLIP, names: Sequence[str]) -> Tensor:
    """(C, 128) unit features of the zero-shot prompts."""
    return encode_texts(model, make_tokenizer(), [PROMPT_TEMPLATE.replace("{class}", name) for name in names])


def pictures(images: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
    """(N, 3, 64, 64) in 0–1 of (N, 64, 64, 3) bytes."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255


def joint_accuracy(model: CLIP, style: str, size: int) -> tuple[float, float]:
    """Zero-shot accuracy over all 160 pairs of glyph and colour; and of the digit alone, where it is one."""
    generator = torch.Generator().manual_seed(SEED + STYLES.index(style))
    pair = torch.arange(size) % (len(GLYPHS) * len(COLOURS))
    images, _ = render(single_objects(pair, generator), torch.full((size,), STYLES.index(style)), generator)
    features = image_features(model, images)
    names = [object_name(glyph, colour) for glyph in range(len(GLYPHS)) for colour in range(len(COLOURS))]
    joint = (features @ class_features(model, names).T).argmax(1) == pair
    digit = pair // len(COLOURS) - len(SHAPES)
    alone = (features @ class_features(model, DIGITS).T).argmax(1) == digit
    return joint.float().mean().item(), alone[digit >= 0].float().mean().item()


def handwriting_accuracy(model: CLIP) -> float:
    """Zero-shot accuracy over the ten digits, on the handwriting's test share."""
    data = load_handwriting()
    features = image_features(model, pictures(data.images[~data.is_train]))
    guess = (features @ class_features(model, DIGITS).T).argmax(1)
    return float(np.mean(guess.numpy() == data.labels[~data.is_train]))


def evaluate_clip(folder: Path, size: int) -> dict[str, Any]:
    """The CLIP's part of evaluation.json; size: images a style."""
    model = load_clip(folder)
    scores = {style: joint_accuracy(model, style, size) for style in STYLES}
    return {
        "joint": {style: round(joint, 4) for style, (joint, _) in scores.items()},
        "joint_public": round(float(np.mean([scores[style][0] for style in PUBLIC_STYLES])), 4),
        "joint_held_out": round(float(np.mean([scores[style][0] for style in HELD_OUT_STYLES])), 4),
        "digits_rendered": round(float(np.mean([scores[style][1] for style in PUBLIC_STYLES])), 4),
        "digits_handwritten": round(handwriting_accuracy(model), 4),
        "images_per_style": size,
    }


# --- LLaVA


@dataclass(frozen=True)
class Reader:
    """The LLaVA, ready to answer in batches."""

    model: LlavaForConditionalGeneration
    tokenizer: PreTrainedTokenizerFast
    image_tokens: int

    @torch.no_grad()
    def answer(self, examples: Sequence[Example]) -> list[str]:
        """Greedy answers, in order."""
        order = sorted(range(len(examples)), key=lambda i: len(examples[i].question))
        answers = [""] * len(examples)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            for row, text in zip(rows, self._answer_batch([examples[i] for i in rows]), strict=True):
                answers[row] = text
        return answers

    def prompt(self, question: str, *, with_image: bool) -> str:
        """What the chat template makes of one question."""
        parts = [{"type": "image"}] if with_image else []
        message: Any = {"role": "user", "content": [*parts, {"type": "text", "text": question}]}
        return str(self.tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False))

    def _answer_batch(self, examples: Sequence[Example]) -> list[str]:
        prompts = [
            self.prompt(example.question, with_image=True).replace("<image>", "<image>" * self.image_tokens)
            for example in examples
        ]
        inputs = self.tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
        images = normalise(pictures(np.stack([example.image for example in examples])))
        made: Any = self.model.generate(  # type: ignore[misc]
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            pixel_values=images,
            max_new_tokens=MAX_NEW_TOKENS,
            do_sample=False,
        )
        return list(self.tokenizer.batch_decode(made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True))


def load_reader(folder: Path, *, nf4: bool = False) -> Reader:
    """The LLaVA of an exported folder in fp32; nf4: with its layer linears quantised and dequantised."""
    model = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, padding_side="left")
    if nf4:
        for name, module in model.named_modules():
            if LAYER_LINEAR.search(name):
                _quantise_(module)
    return Reader(model, tokenizer, int(model.config.image_seq_length))


def _quantise_(linear: torch.nn.Module) -> None:
    weight: Any = linear.weight
    codes, state = quantize_4bit(weight.data, blocksize=64, compress_statistics=True, quant_type="nf4")
    weight.data = dequantize_4bit(codes, state).to(weight.dtype)


def test_questions(task: str, style: str, size: int) -> tuple[Example, ...]:
    """Test examples of one task in one style."""
    config = DataConfig.model_validate(
        {
            "clients": 1,
            "styles": [style],
            "tasks": [task],
            "train_per_client": 1,
            "val_per_client": 0,
            "test_per_client": size,
        }
    )
    return build(config, SEED)[0].test


def _kind(example: Example) -> str:
    """The task, or for `vqa` what is asked for."""
    if example.task != "vqa":
        return example.task
    return {"What shape": "shape", "What colour": "colour", "Is there": "exists"}[
        next(start for start in ("What shape", "What colour", "Is there") if example.question.startswith(start))
    ]


def answer_scores(reader: Reader, examples: Sequence[Example]) -> dict[str, list[float]]:
    """Scores by kind of question."""
    scores: dict[str, list[float]] = defaultdict(list)
    for example, answer in zip(examples, reader.answer(examples), strict=True):
        scores[_kind(example)].append(score(example.task, answer, example.answer))
    return scores


def public_questions(size: int) -> list[Example]:
    """`size` questions of every task (three times as many of `vqa`), in the public styles in equal parts."""
    share = -(-size // len(PUBLIC_STYLES))
    return [
        example
        for task in TASKS
        for style in PUBLIC_STYLES
        for example in test_questions(task, style, share * (3 if task == "vqa" else 1))
    ]


def task_accuracies(folder: Path, size: int, *, nf4: bool) -> dict[str, float]:
    """Accuracy of every kind of question in the public styles."""
    scores = answer_scores(load_reader(folder, nf4=nf4), public_questions(size))
    return {kind: round(float(np.mean(values)), 4) for kind, values in sorted(scores.items())}


def evaluate_llava(folder: Path, size: int) -> dict[str, Any]:
    """The LLaVA's part of evaluation.json; size: questions a task."""
    full, quantised = (task_accuracies(folder, size, nf4=nf4) for nf4 in (False, True))
    reader = load_reader(folder)
    held_out = {
        task: {
            style: round(float(np.mean(answer_scores(reader, test_questions(task, style, size // 2))[task])), 4)
            for style in HELD_OUT_STYLES
        }
        for task in ("caption", "position", "ground", "count")
    }
    return {
        "public": full,
        "public_nf4": quantised,
        "nf4_cost": {kind: round(full[kind] - quantised[kind], 4) for kind in full},
        "held_out": held_out,
        "questions_per_task": size,
    }
