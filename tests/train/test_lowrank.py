"""Low-rank arithmetic against the dense matrices."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from train.lowrank import dense_recompressed, padded, product_norm, recompressed, relative_error, stacked

pytestmark = pytest.mark.numeric

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(1, 4), st.integers(1, 3))


def factors(d_out: int, d_in: int, rank: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    draw = torch.randn(d_out + d_in, rank, generator=random, dtype=torch.float64)
    return draw[:d_out], draw[d_out:].T


@settings(max_examples=30, deadline=None)
@given(SIZES)
def test_norm_and_sum_equal_the_dense_ones(sizes: tuple[int, int, int, int]) -> None:
    d_out, d_in, rank, clients = sizes
    pairs = [factors(d_out, d_in, rank, seed) for seed in range(clients)]
    weights = [1 / (i + 1) for i in range(clients)]
    dense = sum(w * b @ a for (b, a), w in zip(pairs, weights, strict=True))
    assert isinstance(dense, torch.Tensor)
    b, a = stacked(pairs, weights)
    torch.testing.assert_close(b @ a, dense, rtol=0, atol=1e-12)
    assert abs(product_norm(b, a) - dense.norm().item()) < 1e-9


def test_error_of_an_approximation() -> None:
    exact = factors(5, 7, 3, 0)
    off, norm = relative_error(factors(5, 7, 2, 1), exact)
    other, dense = factors(5, 7, 2, 1), exact[0] @ exact[1]
    assert abs(off - (other[0] @ other[1] - dense).norm().item()) < 1e-9
    assert abs(norm - dense.norm().item()) < 1e-9
    assert relative_error(exact, exact)[0] < 1e-6


@settings(max_examples=30, deadline=None)
@given(SIZES, st.integers(1, 14))
def test_recompression_is_the_best_of_its_rank(sizes: tuple[int, int, int, int], rank: int) -> None:
    """Against the dense SVD, as is the error; ranks above what there is are zeros."""
    d_out, d_in, own, _ = sizes
    b, a = factors(d_out, d_in, own, 0)
    sigma = torch.linalg.svdvals(b @ a)
    for (left, right), error in (recompressed(b, a, rank), dense_recompressed(b @ a, rank)):
        assert left.shape == (d_out, rank)
        assert right.shape == (rank, d_in)
        off = (left @ right - b @ a).norm()
        assert abs(float(off - sigma[rank:].norm())) < 1e-9
        assert abs(error - float(off / sigma.norm())) < 1e-9
        torch.testing.assert_close(left.norm(dim=0), right.norm(dim=1), rtol=0, atol=1e-9)  # σ is shared evenly


def test_recompression_of_nothing_is_nothing() -> None:
    (b, a), error = recompressed(torch.zeros(4, 2), torch.ones(2, 3), 5)
    assert error == 0.0
    assert not (b @ a).any()


def test_padding_changes_no_product() -> None:
    b, a = factors(4, 6, 2, 0)
    wide = padded((b, a), 5)
    assert wide[0].shape == (4, 5)
    torch.testing.assert_close(wide[0] @ wide[1], b @ a, rtol=0, atol=1e-12)
