"""Partitions are partitions: nothing lost, nothing twice, skew as asked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from train.data.partition import dirichlet_shares, pathological, split_by_shares, take_turns


@given(clients=st.integers(1, 8), per_client=st.integers(1, 6), spare=st.integers(0, 5), seed=st.integers(0, 99))
def test_pathological_classes_are_disjoint(clients: int, per_client: int, spare: int, seed: int) -> None:
    own = pathological(clients * per_client + spare, clients, per_client, np.random.default_rng(seed))
    flat = [c for classes in own for c in classes]
    assert len(own) == clients
    assert all(len(classes) == per_client and list(classes) == sorted(classes) for classes in own)
    assert len(set(flat)) == len(flat)
    assert max(flat) < clients * per_client + spare


def test_pathological_refuses_too_many_classes() -> None:
    with pytest.raises(
        ValueError, match=r"classes_per_client: 5 clients × 3 classes need 15 disjoint ones, there are 10"
    ):
        pathological(10, 5, 3, np.random.default_rng(0))


@settings(max_examples=50)
@given(clients=st.integers(1, 6), classes=st.integers(6, 20), seed=st.integers(0, 99), size=st.integers(1, 400))
def test_shares_divide_every_example_once(clients: int, classes: int, seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    shares = dirichlet_shares(classes, clients, 1.0, rng)
    assert np.allclose(shares.sum(0), 1)
    labels = rng.integers(classes, size=size)
    parts = split_by_shares(labels, shares, rng)
    assert sorted(np.concatenate(parts).tolist()) == list(range(size))


def test_small_alpha_is_more_skewed() -> None:
    def largest_share(alpha: float) -> float:
        return float(
            np.mean([dirichlet_shares(40, 4, alpha, np.random.default_rng(s)).max(0).mean() for s in range(5)])
        )

    assert largest_share(0.1) > largest_share(1.0) + 0.2 > largest_share(100.0) + 0.3


def test_hopeless_dirichlet_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alpha: found 0\.001"):
        dirichlet_shares(2, 10, 0.001, np.random.default_rng(0))


def test_take_turns() -> None:
    assert take_turns(["a", "b"], 5) == ["a", "b", "a", "b", "a"]
