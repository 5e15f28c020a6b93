"""KnOTS against numpy's SVD of the concatenated dense updates."""

import numpy as np
import pytest
import torch

from tests.train.merging.drawn import SHAPES, Dense, adapter, dense
from tests.train.merging.test_ties import by_hand
from train.lowrank import Factors
from train.merging.knots import align, knots
from train.merging.means import exact_mean

pytestmark = pytest.mark.numeric

CLIENTS = [adapter(0, rank=1), adapter(1, rank=1)]


def aligned(clients: list[dict[str, Factors]], module: str) -> tuple[Dense, list[Dense]]:
    """U and every Σ V_kᵀ, dense."""
    updates = [dense(client[module]) for client in clients]
    u, sigma, vt = np.linalg.svd(np.concatenate(updates, axis=1), full_matrices=False)
    u, vt = u[:, sigma > 1e-9], (sigma[:, None] * vt)[sigma > 1e-9]
    return u, np.split(vt, len(clients), axis=1)


@pytest.mark.parametrize("density", [0.3, 1.0])
def test_equals_ties_in_the_dense_basis(density: float) -> None:
    names = sorted(SHAPES)
    bases = {module: aligned(CLIENTS, module) for module in names}
    flat = [np.concatenate([bases[module][1][k].ravel() for module in names]) for k in range(2)]
    sizes = [bases[module][1][0].size for module in names]
    expected = np.split(by_hand(flat, density), np.cumsum(sizes)[:-1])
    for module, values in zip(names, expected, strict=True):
        u, vts = bases[module]
        factors = knots(CLIENTS, density=density, scale=0.6)[module]
        np.testing.assert_allclose(dense(factors), 0.6 * u @ values.reshape(vts[0].shape), rtol=0, atol=1e-12)


def test_alignment_gives_every_update_back() -> None:
    factors = [adapter(seed, rank=seed + 1)["block.2.attn"] for seed in range(3)]
    u, vts = align(factors)
    torch.testing.assert_close(u.T @ u, torch.eye(u.shape[1], dtype=torch.float64))
    for (b, a), vt in zip(factors, vts, strict=True):
        torch.testing.assert_close(u @ vt, b @ a, rtol=0, atol=1e-12)


def test_shared_and_null_directions_are_padded_to_one_rank() -> None:
    same = knots([CLIENTS[0], CLIENTS[0]], density=1.0)
    for module, (b, a) in same.items():
        assert b.shape[1] == a.shape[0] == 2
        np.testing.assert_allclose(dense((b, a)), dense(CLIENTS[0][module]), rtol=0, atol=1e-12)
    zero = {module: (torch.zeros_like(b), a) for module, (b, a) in CLIENTS[0].items()}
    assert all(not dense(factors).any() for factors in knots([zero, zero]).values())


def test_the_same_every_time_and_not_the_mean() -> None:
    first, again = knots(CLIENTS), knots(CLIENTS)
    assert all(torch.equal(first[m][side], again[m][side]) for m in first for side in (0, 1))
    assert not np.allclose(dense(first["block.2.attn"]), dense(exact_mean(CLIENTS)["block.2.attn"]))


def test_a_value_that_is_not_finite_is_refused() -> None:
    broken = CLIENTS[1] | {"block.2.attn": (torch.full((4, 1), torch.inf), torch.ones(1, 9))}
    with pytest.raises(ValueError, match=r"^block\.2\.attn: adapter 2 holds a value that is not finite"):
        knots([CLIENTS[0], broken])
