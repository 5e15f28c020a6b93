"""Every aggregator against its formula in float64 NumPy; what all of them keep; what hostile updates do to each."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from train.aggregation.aggregator import Aggregator
from train.aggregation.clipped_mean import ClippedMean
from train.aggregation.mean import Mean
from train.aggregation.median import Median
from train.aggregation.multi_krum import MultiKrum
from train.aggregation.trimmed_mean import TrimmedMean
from train.tensors import Tensors

pytestmark = pytest.mark.numeric

SHAPES = {"a": (3, 4), "b": (5,)}
WEIGHTS = [0.1, 0.2, 0.3, 0.15, 0.25]
ALL: list[Aggregator] = [Mean(), Median(), TrimmedMean(), MultiKrum(), ClippedMean()]
ROBUST = [Median(), TrimmedMean(), MultiKrum()]
every = pytest.mark.parametrize("aggregator", ALL, ids=lambda aggregator: aggregator.rule)
robust = pytest.mark.parametrize("aggregator", ROBUST, ids=lambda aggregator: aggregator.rule)


def drawn(seed: int) -> Tensors:
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=random) for name, shape in SHAPES.items()}


RECEIVED, UPDATES = drawn(100), [drawn(seed) for seed in range(5)]


def stacked(name: str, updates: list[Tensors] = UPDATES) -> NDArray[np.float64]:
    return np.stack([update[name].double().numpy() for update in updates])


def rows(updates: list[Tensors]) -> NDArray[np.float64]:
    return np.stack([np.concatenate([update[name].double().numpy().ravel() for name in SHAPES]) for update in updates])


def check(combined: Tensors, expected: dict[str, NDArray[np.float64]]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(combined[name].numpy(), value, rtol=1e-6, atol=1e-6)


def test_the_mean_is_weighted() -> None:
    expected = {name: np.tensordot(WEIGHTS, stacked(name), 1) for name in SHAPES}
    check(Mean().combine(RECEIVED, UPDATES, WEIGHTS), expected)


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_the_median_is_that_of_every_entry(count: int) -> None:
    some = UPDATES[:count]
    check(Median().combine(RECEIVED, some, [1 / count] * count), {n: np.median(stacked(n, some), 0) for n in SHAPES})


@pytest.mark.parametrize(("trim", "cut"), [(0.2, 1), (0.4, 2), (0.05, 1)])
def test_the_trimmed_mean_leaves_out_both_ends_of_every_entry(trim: float, cut: int) -> None:
    expected = {name: np.sort(stacked(name), 0)[cut : 5 - cut].mean(0) for name in SHAPES}
    check(TrimmedMean(trim=trim).combine(RECEIVED, UPDATES, WEIGHTS), expected)


def test_multi_krum_averages_the_updates_that_lie_closest_to_others() -> None:
    flat = rows(UPDATES)
    squares = ((flat[:, None] - flat[None]) ** 2).sum(-1)
    scores = [sorted(np.delete(squares[k], k))[: 5 - 1 - 2] for k in range(5)]
    np.testing.assert_allclose(MultiKrum().scores(UPDATES), [sum(score) for score in scores], rtol=1e-9)
    kept = sorted(np.argsort([sum(score) for score in scores])[:4])
    shares = np.array(WEIGHTS)[kept] / np.array(WEIGHTS)[kept].sum()
    expected = {name: np.tensordot(shares, stacked(name)[kept], 1) for name in SHAPES}
    check(MultiKrum().combine(RECEIVED, UPDATES, WEIGHTS), expected)


@pytest.mark.parametrize("norm", [None, 3.0, 1e6])
def test_steps_are_clipped_in_norm_over_all_tensors(norm: float | None) -> None:
    start = rows([RECEIVED])[0]
    steps = rows(UPDATES) - start
    norms = np.linalg.norm(steps, axis=1)
    most = np.median(norms) if norm is None else norm
    expected = start + (np.array(WEIGHTS) * np.minimum(1, most / norms)) @ steps
    combined = ClippedMean(norm=norm).combine(RECEIVED, UPDATES, WEIGHTS)
    np.testing.assert_allclose(rows([combined])[0], expected, rtol=1e-6, atol=1e-6)


@every
def test_equal_updates_come_out_as_they_are_in_their_own_type(aggregator: Aggregator) -> None:
    one = {"a": torch.arange(12, dtype=torch.bfloat16).reshape(3, 4), "b": torch.full((5,), 0.25)}
    combined = aggregator.combine({**one, "kept": torch.ones(2)}, [one] * 5, WEIGHTS)
    assert combined.keys() == one.keys()
    for name, tensor in one.items():
        assert combined[name].dtype == tensor.dtype
        assert torch.equal(combined[name], tensor)


@every
def test_inputs_are_left_alone(aggregator: Aggregator) -> None:
    updates, received = [drawn(seed) for seed in range(5)], drawn(100)
    aggregator.combine(received, updates, WEIGHTS)
    for update, seed in zip([*updates, received], (0, 1, 2, 3, 4, 100), strict=True):
        assert all(torch.equal(update[name], drawn(seed)[name]) for name in SHAPES)


@robust
def test_one_hostile_update_of_five_moves_no_entry_beyond_the_honest(aggregator: Aggregator) -> None:
    hostile = {name: -1e6 * tensor for name, tensor in UPDATES[4].items()}
    combined = aggregator.combine(RECEIVED, [*UPDATES[:4], hostile], WEIGHTS)
    for name in SHAPES:
        honest = stacked(name, UPDATES[:4])
        assert (combined[name].numpy() >= honest.min(0) - 1e-5).all()
        assert (combined[name].numpy() <= honest.max(0) + 1e-5).all()
    plain = Mean().combine(RECEIVED, [*UPDATES[:4], hostile], WEIGHTS)
    assert all(float(plain[name].abs().max()) > 1e5 for name in SHAPES)


def test_a_hostile_step_is_no_longer_than_the_median_one() -> None:
    hostile = {name: RECEIVED[name] + 1e6 * tensor for name, tensor in UPDATES[4].items()}
    combined = ClippedMean().combine(RECEIVED, [*UPDATES[:4], hostile], WEIGHTS)
    steps = np.linalg.norm(rows([*UPDATES[:4], hostile]) - rows([RECEIVED]), axis=1)
    assert np.linalg.norm(rows([combined]) - rows([RECEIVED])) <= np.median(steps) * (1 + 1e-6)


@pytest.mark.parametrize("aggregator", [TrimmedMean(), MultiKrum(), MultiKrum(attackers=2)])
def test_too_few_updates_are_refused(aggregator: Aggregator) -> None:
    few = aggregator.least - 1
    with pytest.raises(ValueError, match=f"{few} updates, {aggregator.rule} needs {aggregator.least}"):
        aggregator.combine(RECEIVED, UPDATES[:1] * few, [1 / few] * few)
