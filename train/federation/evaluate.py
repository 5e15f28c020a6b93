"""Scores of one client's model on its held-out examples."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from train.data import Example
from train.data.metrics import metrics
from train.data.score import score
from train.models.interfaces import Personal


@dataclass(frozen=True)
class Scores:
    """Mean score in [0, 1] over all examples, and by task; further figures of a task, as in ``caption.bleu``."""

    mean: float
    by_task: dict[str, float]
    metrics: dict[str, float] = field(default_factory=dict)


def evaluate(personal: Personal, examples: Sequence[Example]) -> Scores:
    """Greedy answers scored against the truth: exact match, or IoU ≥ 0.5 for boxes; and the tasks' own metrics."""
    by_task: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for example, answer in zip(examples, personal.answer(examples), strict=True):
        by_task[example.task].append((answer, example.answer))
    scores = {task: [score(task, *pair) for pair in pairs] for task, pairs in sorted(by_task.items())}
    return Scores(
        _mean([value for values in scores.values() for value in values]),
        {task: _mean(values) for task, values in scores.items()},
        {
            f"{task}.{name}": value
            for task in scores
            for name, value in metrics(task, *zip(*by_task[task], strict=True)).items()
        },
    )


def unseen_row(kind: str, row: str) -> str:
    """The name of a row of the results where it is measured on the unseen examples of this kind."""
    return f"unseen.{kind}.{row}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
