"""Time of the own prompt's class features with their gradient: what every training step spends on text."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from adapters_store.personal.prompt import prompt_width
from bench.prompt_study.loop import threads
from bench.prompt_study.reference import WholeText
from train.models.clip import ResidentClip
from train.tensors import generator


def measure_encoding(
    resident: ResidentClip,
    class_names: Sequence[str],
    length: int,
    thread_counts: Sequence[int],
    repetitions: int,
    tick: Callable[[str], None],
) -> dict[str, Any]:
    """Seconds (medians) of features (C, D) and their gradient to a prompt of ``length`` vectors, on every path.

    The paths take turns, after one untimed turn each; ``gradient_difference`` is relative to the fast path's norm.
    """
    prompt = 0.02 * torch.randn(length, prompt_width(resident.clip), generator=generator(0, "prompt"))
    prompt.requires_grad_()
    texts, whole = resident.texts(class_names, length), WholeText(resident.clip, class_names, length)
    paths: dict[str, Callable[[Tensor], Tensor]] = {
        "fast": texts.features,
        "plain": texts.plain_features,
        "reference": whole,
    }
    weights = torch.randn(texts.features(prompt).shape, generator=generator(0, "weights"))
    (classes, suffix), prefix = texts.suffix.shape[:2], texts.start.shape[1] + length
    positions = {
        "fast": prefix + classes * suffix,
        "plain": classes * (prefix + suffix),
        "reference": classes * texts.tower.context,
    }
    measured: dict[str, Any] = {"classes": classes, "positions": positions, "threads": {}}
    for count in thread_counts:
        with threads(count):
            gradients = {path: _gradient(encode, prompt, weights)[1] for path, encode in paths.items()}
            seconds: dict[str, list[float]] = {path: [] for path in paths}
            for _ in range(repetitions):
                for path, encode in paths.items():
                    seconds[path].append(_gradient(encode, prompt, weights)[0])
                tick(f"text encoding, {count} threads")
        middle = {path: median(values) for path, values in seconds.items()}
        fast = gradients["fast"]
        measured["threads"][str(count)] = {
            "seconds": middle,
            "ratio": {path: value / middle["fast"] for path, value in middle.items()},
            "gradient_difference": max(float((g - fast).norm() / fast.norm()) for g in gradients.values()),
        }
    return measured


def _gradient(encode: Callable[[Tensor], Tensor], prompt: Tensor, weights: Tensor) -> tuple[float, Tensor]:
    """Seconds of features and gradient, and the gradient (M, W) of their sum under these weights."""
    started = time.perf_counter()
    (gradient,) = torch.autograd.grad((encode(prompt) * weights).sum(), prompt)
    return time.perf_counter() - started, gradient
