"""TIES by hand and against a loop over entries."""

import numpy as np
import pytest
import torch

from tests.train.merging.drawn import SHAPES, Dense, adapter, dense
from train.merging.ties import ties, ties_streamed

pytestmark = pytest.mark.numeric

CLIENTS = [adapter(0), adapter(1, rank=3), adapter(2)]


def by_hand(vectors: list[Dense], density: float) -> Dense:
    """Algorithm 1 on flat task vectors (K, n)."""
    trimmed = []
    for vector in vectors:
        order = sorted(range(len(vector)), key=lambda i: (abs(vector[i]), i))
        lost = set(order[: int(round(1 - density, 9) * len(vector))])
        trimmed.append([0.0 if i in lost else value for i, value in enumerate(vector)])
    merged = []
    for entries in zip(*trimmed, strict=True):
        sign = 1 if sum(entries) >= 0 else -1
        agreeing = [entry for entry in entries if entry * sign > 0]
        merged.append(sum(agreeing) / max(len(agreeing), 1))
    return np.array(merged)


@pytest.mark.parametrize("density", [0.2, 0.5, 1.0])
def test_equals_algorithm_1_over_the_whole_vector(density: float) -> None:
    names = sorted(SHAPES)
    flat = [np.concatenate([dense(client[module]).ravel() for module in names]) for client in CLIENTS]
    expected = np.split(by_hand(flat, density), np.cumsum([np.prod(SHAPES[module]) for module in names])[:-1])
    merged = ties(CLIENTS, rank=9, density=density, scale=0.6)
    for module, values in zip(names, expected, strict=True):
        np.testing.assert_allclose(dense(merged[module]), 0.6 * values.reshape(SHAPES[module]), rtol=0, atol=1e-12)
        assert merged.errors[module] < 1e-12


def test_scope_tensor_trims_each_module() -> None:
    for module, factors in ties(CLIENTS, rank=9, density=0.3, scope="tensor").items():
        expected = by_hand([dense(client[module]).ravel() for client in CLIENTS], 0.3)
        np.testing.assert_allclose(dense(factors), expected.reshape(SHAPES[module]), rtol=0, atol=1e-12)


def test_signs_are_elected_and_zeros_not_counted() -> None:
    tasks = [{"w": torch.tensor(row)} for row in ([3.0, -1.0, 0.1, 2.0], [1.0, -3.0, 5.0, -2.0], [-2.0, 2.0, 0.1, 4.0])]
    ((_, merged),) = ties_streamed(tasks, density=0.75)
    assert merged.tolist() == [3.0, -2.0, 5.0, 3.0]


def test_error_is_the_dense_one() -> None:
    whole, cut = ties(CLIENTS, rank=9), ties(CLIENTS, rank=1)
    for module, factors in cut.items():
        exact = dense(whole[module])
        error = np.linalg.norm(dense(factors) - exact) / np.linalg.norm(exact)
        assert cut.errors[module] == pytest.approx(error, rel=1e-9)


def test_adapters_of_other_modules_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^block\.2\.attn: adapter 1 has this module, adapter 2 does not"):
        ties([CLIENTS[0], {m: f for m, f in CLIENTS[1].items() if m != "block.2.attn"}], rank=4)
