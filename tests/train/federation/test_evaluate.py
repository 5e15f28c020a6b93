"""Scores of given answers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from torch import Generator, nn

from train.data import Example
from train.federation.evaluate import Scores, evaluate
from train.models.interfaces import Outputs

IMAGE = np.zeros((4, 4, 3), dtype=np.uint8)


class Says:
    """A model whose answers are known."""

    parameters: Mapping[str, nn.Parameter] = {}

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    def prepare(self, examples: Sequence[Example], augment: Generator | None = None) -> Any:
        raise NotImplementedError

    def outputs(self, prepared: Any, rows: Sequence[int]) -> Outputs:
        raise NotImplementedError

    def answer(self, examples: Sequence[Example]) -> list[str]:
        return self.answers


def asked(task: str, truth: str) -> Example:
    return Example(IMAGE, "?", truth, task, -1, "uid", "flat")


def test_tasks_are_scored_apart_and_together() -> None:
    examples = [asked("vqa", "yes"), asked("ground", "box 0 0 9 9"), asked("vqa", "no"), asked("caption", "a red star")]
    scores = evaluate(Says("yes", "box 0 0 9 4", "yes", "a red star"), examples)
    assert scores.mean == 0.75
    assert scores.by_task == {"caption": 1.0, "ground": 1.0, "vqa": 0.5}
    assert scores.metrics == {
        "caption.bleu": 0.0,  # three words make no four in a row
        "caption.rouge_l": pytest.approx(1.0),
        "ground.iou": pytest.approx(0.5),
        "ground.accuracy_50": 1.0,
    }
    assert Scores(**asdict(scores)) == scores


def test_a_missing_answer_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        evaluate(Says("yes"), [asked("vqa", "yes"), asked("vqa", "no")])
