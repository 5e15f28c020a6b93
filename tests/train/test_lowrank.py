"""Low-rank arithmetic against the dense matrices."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from train.lowrank import product_norm, relative_error, stacked

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
