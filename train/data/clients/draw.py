"""Examples drawn at random: the seeds of a client's split, its pictures, its questions."""

from collections.abc import Sequence
from random import Random
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from train.data.examples import Example
from train.data.world.questions import ask, things
from train.data.world.render import boxes, render, to_bytes
from train.data.world.scenes import Scenes, pair_weights, sample_scenes
from train.data.world.vocabulary import COLOURS, DIGITS, SHAPES, STYLES

COUNTS: Final = {"relation": (0.0, 1.0, 1.0), "digit": (1.0, 0.0, 0.0)}
"""Weights of one, two and three objects in scenes of a task; equal where not named."""

Key = tuple[int, int, int]
"""Seed, client and split."""


def generators(*key: int) -> tuple[torch.Generator, Random]:
    """Random numbers of one key, for pictures and for questions."""
    state = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state % 2**63), Random(state)


def paint(scenes: Scenes, style: str, generator: torch.Generator) -> tuple[NDArray[np.uint8], torch.Tensor]:
    """Pictures (B, 64, 64, 3) of the scenes in one style, and the objects' boxes (B, 3, 4)."""
    images, distance = render(scenes, torch.full((len(scenes),), STYLES.index(style)), generator)
    return to_bytes(images).contiguous().numpy(), boxes(distance)


def questions(size: int, style: str, tasks: Sequence[str], key: Key, prefix: str) -> tuple[Example, ...]:
    """`size` examples of the given tasks in turn."""
    examples: list[Example] = []
    for t, task in enumerate(tasks):
        number = (size - t + len(tasks) - 1) // len(tasks)
        if number <= 0:
            continue
        generator, random = generators(*key, t)
        glyphs = range(len(SHAPES), len(SHAPES) + len(DIGITS)) if task == "digit" else range(len(SHAPES))
        weights = pair_weights(list(glyphs), list(range(len(COLOURS))))
        scenes = sample_scenes(number, generator, weights, COUNTS.get(task, (1.0, 1.0, 1.0)))
        images, edges = paint(scenes, style, generator)
        for i, (image, scene) in enumerate(zip(images, things(scenes, edges), strict=True)):
            _, question, answer = ask(task, scene, random)
            examples.append(Example(image, question, answer, task, -1, f"scenes-{prefix}-{task}-{i}", style))
    Random(str(key)).shuffle(examples)
    return tuple(examples)
