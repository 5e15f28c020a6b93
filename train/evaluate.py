"""Scores of one client's model on its held-out examples."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from train.data import Example
from train.data.score import score
from train.methods.base import Personal


@dataclass(frozen=True)
class Scores:
    """Mean score in [0, 1] over all examples, and by task."""

    mean: float
    by_task: dict[str, float]


def evaluate(personal: Personal, examples: Sequence[Example]) -> Scores:
    """Greedy answers scored against the truth: exact match, or IoU ≥ 0.5 for boxes."""
    answers = personal.answer(examples)
    by_task: dict[str, list[float]] = defaultdict(list)
    for example, answer in zip(examples, answers, strict=True):
        by_task[example.task].append(score(example.task, answer, example.answer))
    every = [value for values in by_task.values() for value in values]
    return Scores(_mean(every), {task: _mean(values) for task, values in sorted(by_task.items())})


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
