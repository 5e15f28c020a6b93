"""Accuracy of a merged adapter on a style, over all 80 classes."""

from functools import cache
from typing import Literal

import torch
from torch import Tensor

from adapters_store.personal.vision_lora import image_features, weight_of
from bench.merging_study.clients import data, resident
from train.merging.adapter import Adapter
from train.models.vision_lora import zero_shot_text

BATCH = 80
Split = Literal["test", "held back"]


@cache
def _examples(seed: int, style: str, split: Split) -> tuple[Tensor, Tensor]:
    """Pixels (n, 3, size, size) and labels (n,)."""
    client = data(seed)[style]
    examples = client.test if split == "test" else client.test + client.val
    return resident().pixels([e.image for e in examples]), torch.tensor([e.label for e in examples])


@torch.no_grad()
def accuracy(adapter: Adapter, seed: int, style: str, split: Split, count: int | None = None) -> float:
    """On the first ``count`` images that the style's client holds back."""
    pixels, labels = (part[:count] for part in _examples(seed, style, split))
    model = resident()
    texts = zero_shot_text(model, next(iter(data(seed).values())).class_names)
    deltas = {weight_of(module): (b.float(), a.float()) for module, (b, a) in adapter.items()}
    right = 0
    for rows, wanted in zip(pixels.split(BATCH), labels.split(BATCH), strict=True):
        found = (image_features(model.clip, deltas, rows) @ texts.T).argmax(-1)
        right += int((found == wanted).sum())
    return right / len(labels)
