"""RobustMerge by hand and against numpy."""

import numpy as np
import pytest
import torch

from tests.train.merging.drawn import Dense, adapter, dense
from train.merging.robust import robust_merge

pytestmark = pytest.mark.numeric

CLIENTS = [adapter(0, rank=3), adapter(1, rank=3), adapter(2, rank=3)]


def pruned(tensor: Dense, density: float) -> Dense:
    flat = tensor.ravel().copy()
    flat[np.argsort(np.abs(flat), kind="stable")[: int(round(1 - density, 9) * flat.size)]] = 0.0
    return flat.reshape(tensor.shape)


@pytest.mark.parametrize("density", [0.2, 0.5, 1.0])
def test_equals_the_papers_formula(density: float) -> None:
    for module, factors in robust_merge(CLIENTS, density=density, scale=2.0).items():
        bs = [client[module][0].numpy() for client in CLIENTS]
        as_ = [client[module][1].numpy() for client in CLIENTS]
        kept_b, kept_a = [pruned(b, density) for b in bs], [pruned(a, density) for a in as_]
        s = np.zeros((3, 3))  # client, row
        for k in range(3):
            for row in range(3):
                left = np.abs(kept_a[k][row]).sum()
                s[k, row] = np.abs(as_[k][row]).sum() / left if left else 0.0
        share = [[s[k, i] / s[:, i].sum() if s[:, i].sum() else 0.0 for i in range(3)] for k in range(3)]
        b = sum(kept_b[k] @ np.diag(share[k]) for k in range(3))
        np.testing.assert_allclose(dense(factors), 2.0 * b @ sum(kept_a), rtol=0, atol=1e-12)


def test_by_hand_on_one_row() -> None:
    """A: half is kept. S = 4/3 and 3/2, shares 8/17 and 9/17."""
    first = {"m": (torch.tensor([[1.0], [0.1]]), torch.tensor([[3.0, 1.0]]))}
    second = {"m": (torch.tensor([[0.1], [1.0]]), torch.tensor([[1.0, 2.0]]))}
    ((b, a),) = robust_merge([first, second], density=0.5, scale=17.0).values()
    assert a.tolist() == [[3.0, 2.0]]
    np.testing.assert_allclose(b.numpy(), [[8.0], [9.0]], rtol=1e-12)


def test_rows_pruned_everywhere_are_zero() -> None:
    small = {"m": (torch.ones(2, 2), torch.tensor([[5.0, 6.0], [0.1, 0.2]]))}
    ((b, a),) = robust_merge([small, small], density=0.5).values()
    assert bool(b.isfinite().all())
    assert a[1].tolist() == [0.0, 0.0]


def test_the_same_every_time_and_one_rank_only() -> None:
    first, again = robust_merge(CLIENTS), robust_merge(CLIENTS)
    assert all(torch.equal(first[m][side], again[m][side]) for m in first for side in (0, 1))
    with pytest.raises(ValueError, match=r"^block\.10\.attn: adapter 2 has rank 2, adapter 1 3; it must be one"):
        robust_merge([CLIENTS[0], adapter(1, rank=2)])
