"""DARE: what is dropped is dropped whole, what stays is scaled, expectations are kept, seeds decide."""

import numpy as np
import pytest
import torch

from tests.train.merging.drawn import adapter, dense
from train.merging.adapter import deltas
from train.merging.dare import dare, dare_streamed
from train.merging.means import exact_mean

pytestmark = pytest.mark.numeric

CLIENTS = [adapter(0), adapter(1, rank=3), adapter(2)]


def test_one_adapter_keeps_or_loses_each_entry() -> None:
    for module, factors in dare(CLIENTS[:1], rank=9, seed=3, drop=0.5).items():
        ratio = dense(factors) / dense(CLIENTS[0][module])
        assert set(np.round(ratio, 9).ravel().tolist()) == {0.0, 2.0}


def test_clients_are_dropped_apart_and_averaged() -> None:
    """The mean of what each entry could be: 2 τ_k or 0 of every client."""
    merged = dare(CLIENTS, rank=9, seed=3, drop=0.5)
    patterns = set()
    for module, factors in merged.items():
        parts = np.stack([dense(client[module]) for client in CLIENTS])
        choices = np.array(np.meshgrid([0, 2], [0, 2], [0, 2])).reshape(3, 8)
        sums = np.tensordot(choices.T, parts, axes=1) / 3
        distance = np.abs(sums - dense(factors))
        assert distance.min(axis=0).max() < 1e-12
        patterns |= set(distance.argmin(axis=0).ravel().tolist())
    assert len(patterns) == 8


def test_the_expectation_is_the_exact_mean() -> None:
    mean = exact_mean(CLIENTS)
    draws = [dict(dare_streamed(deltas(CLIENTS), seed, 0.5)) for seed in range(300)]
    for module, factors in mean.items():
        drawn = torch.stack([draw[module] for draw in draws])
        error = (drawn.mean(dim=0) - factors[0] @ factors[1]).abs()
        assert bool((error < 4.5 * drawn.std(dim=0) / 300**0.5).all())


def test_seeds_decide_and_nothing_dropped_is_the_mean() -> None:
    first, again, other = (dare(CLIENTS, rank=4, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(first[m][side], again[m][side]) for m in first for side in (0, 1))
    assert any(not torch.equal(first[m][0], other[m][0]) for m in first)
    for module, factors in dare(CLIENTS, rank=9, seed=1, drop=0.0).items():
        np.testing.assert_allclose(dense(factors), dense(exact_mean(CLIENTS)[module]), rtol=0, atol=1e-12)


def test_a_share_out_of_bounds_is_refused() -> None:
    for drop in (-0.1, 1.0):
        with pytest.raises(ValueError, match=r"^drop: .* at least 0 and below 1\.$"):
            dare(CLIENTS, rank=4, seed=0, drop=drop)
