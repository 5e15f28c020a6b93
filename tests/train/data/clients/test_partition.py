"""Partitions are partitions: nothing lost, nothing twice, skew as asked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from train.data.clients.partition import (
    Pachinko,
    client_ids,
    dirichlet_shares,
    domain_shares,
    draw_pachinko,
    pachinko_weights,
    pathological,
    split_by_shares,
    take_turns,
)


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


@given(classes=st.integers(1, 40), clients=st.integers(1, 12), seed=st.integers(0, 99))
def test_all_classes_can_be_given_out_evenly(classes: int, clients: int, seed: int) -> None:
    if clients > classes:
        with pytest.raises(ValueError, match=f"clients: found {clients}, with disjoint classes at most {classes}"):
            pathological(classes, clients, None, np.random.default_rng(seed))
        return
    own = pathological(classes, clients, None, np.random.default_rng(seed))
    assert sorted(c for part in own for c in part) == list(range(classes))
    assert max(map(len, own)) - min(map(len, own)) <= 1


def test_domain_shares_keep_to_one_domain_a_client() -> None:
    shares = domain_shares(3, 8, 6, 0.5, np.random.default_rng(0)).reshape(6, 3, 8)
    assert np.allclose(shares.sum(0), 1)
    assert [np.flatnonzero(client.sum(1)).tolist() for client in shares] == [[0], [0], [1], [1], [2], [2]]
    assert np.allclose(domain_shares(3, 8, 3, 0.5, np.random.default_rng(0)), np.repeat(np.eye(3), 8, axis=1))


COARSE = np.repeat(np.arange(5), 4)
"""Twenty classes, four to a super-class."""


@settings(max_examples=30, deadline=None)
@given(
    clients=st.integers(1, 6),
    size=st.integers(6, 300),
    alpha=st.sampled_from([1e-4, 0.1, 10.0]),
    seed=st.integers(0, 99),
)
def test_pachinko_divides_without_replacement(clients: int, size: int, alpha: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(20, size=size)
    parts = draw_pachinko(labels, COARSE, pachinko_weights(COARSE, clients, alpha, 10.0, rng), rng)
    flat = np.concatenate(parts)
    assert len(set(flat.tolist())) == len(flat)
    assert {len(part) for part in parts} == {size // clients}
    assert flat.max() < size


def test_pachinko_weights_are_two_levels_of_dirichlet() -> None:
    weights = pachinko_weights(COARSE, 400, 0.1, 10.0, np.random.default_rng(0))
    assert np.allclose(weights.theta.sum(1), 1)
    within = weights.phi.reshape(400, 5, 4)
    assert np.allclose(within.sum(2), 1)
    # variance of a share of a symmetric Dirichlet(a) over n: (n − 1) / (n² (n a + 1))
    assert np.isclose(weights.theta.var(), 4 / (25 * 1.5), rtol=0.1)
    assert np.isclose(within.var(), 3 / (16 * 41), rtol=0.1)


def test_pachinko_draws_by_the_weights_until_used_up() -> None:
    rng = np.random.default_rng(0)
    theta = np.array([[0.75, 0.25, 0, 0, 0]])
    phi = np.tile([0.7, 0.1, 0.1, 0.1], 5)[None]
    labels = np.repeat(np.arange(20), 1000)
    weights = Pachinko(np.repeat(theta, 20, axis=0), np.repeat(phi, 20, axis=0))
    first = labels[draw_pachinko(labels, COARSE, weights, rng)[0]]
    assert np.isclose(np.mean(first < 4), 0.75, atol=0.06)
    assert np.isclose(np.mean(first % 4 == 0), 0.7, atol=0.06)
    # one client takes everything: classes of no weight too, once nothing else is left
    (every,) = draw_pachinko(labels[:200], COARSE, Pachinko(theta, phi), rng)
    assert every.tolist() == list(range(200))


def test_client_ids_sort_as_they_count() -> None:
    assert client_ids(3) == ["client-00", "client-01", "client-02"]
    assert client_ids(101) == sorted(client_ids(101))


def test_take_turns() -> None:
    assert take_turns(["a", "b"], 5) == ["a", "b", "a", "b", "a"]
