"""Means over seeds, and paired differences with confidence intervals."""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any

from scipy.stats import t  # type: ignore[import-untyped]


def over_seeds(accuracy: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Mean client and worst client of each seed (a list over clients), and their mean and deviation over the seeds."""
    result: dict[str, Any] = {}
    for name, reduce in (("mean", mean), ("worst", min)):
        values = [float(reduce(clients)) for clients in accuracy]
        result[name] = {"mean": mean(values), "std": stdev(values) if len(values) > 1 else 0.0, "seeds": values}
    return result


def paired(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The mean difference of the same clients in the same seeds, with two 95 % Student intervals.

    ``pairs`` takes every seed × client pair for independent; ``seeds`` takes the seeds' means, and so allows for what
    the clients of one federation have in common. Clients count equally; all seeds have as many.
    """
    differences = [[a - b for a, b in zip(x, y, strict=True)] for x, y in zip(ours, theirs, strict=True)]
    every = [d for one in differences for d in one]
    return {
        "mean": mean(every),
        "pairs": interval(every),
        "seeds": interval([mean(one) for one in differences]),
        "better": sum(d > 0 for d in every),
        "equal": sum(d == 0 for d in every),
        "worse": sum(d < 0 for d in every),
    }


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Student's interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    half = float(t.ppf((1 + confidence) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return mean(values) - half, mean(values) + half
