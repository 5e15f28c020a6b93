"""ATAF against its definition: Procrustes' optimum, least squares, factors against matrices, and its fixed points."""

import pytest
import torch
from torch import Tensor

from train.lowrank import Factors
from train.merging.ataf import NULL, alignment, ataf, fused, fused_factors, scales

pytestmark = pytest.mark.numeric

SHAPES = [(256, 256), (192, 256), (256, 192)]
RANKS = [(8, 8), (4, 12), (12, 4)]


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def factors(d_out: int, d_in: int, rank: int, seed: int) -> Factors:
    return random(d_out, rank, seed=seed), random(rank, d_in, seed=seed + 1000)


def by_definition(tau_a: Tensor, tau_b: Tensor) -> tuple[Tensor, Tensor]:
    """(τ_B P, λ) with M formed in full."""
    u, sigma, vh = torch.linalg.svd(tau_b.T @ tau_a)
    rank = int((sigma > NULL * sigma[0]).sum())
    turned = tau_b @ u[:, :rank] @ vh[:rank]
    norms = turned.norm(dim=0)
    inner = (turned * tau_a).sum(0)
    return turned, torch.where(norms <= NULL * norms.max(), 0.0, inner / norms.clamp_min(1e-300) ** 2)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ranks", [*RANKS, (300, 300)])
def test_residual_of_the_rotation_is_the_closed_form(shape: tuple[int, int], ranks: tuple[int, int]) -> None:
    """‖τ_A − τ_B P‖² = ‖τ_A‖² + ‖τ_B U_r‖² − 2 ‖M‖_*."""
    (b_a, a_a), (b_b, a_b) = factors(*shape, ranks[0], 1), factors(*shape, ranks[1], 2)
    tau_a, tau_b = b_a @ a_a, b_b @ a_b
    left, right = alignment(tau_a, tau_b)
    u, sigma, _ = torch.linalg.svd(tau_b.T @ tau_a)
    rank = int((sigma > NULL * sigma[0]).sum())
    assert rank == min(*shape, *ranks)
    closed = tau_a.norm() ** 2 + (tau_b @ u[:, :rank]).norm() ** 2 - 2 * sigma.sum()
    torch.testing.assert_close((tau_a - left @ right.T).norm() ** 2, closed, rtol=1e-9, atol=0)


def test_no_other_isometry_comes_closer() -> None:
    tau_a, tau_b = random(40, 24, seed=1), random(40, 24, seed=2)
    left, right = alignment(tau_a, tau_b)
    best = (tau_a - left @ right.T).norm()
    for seed in range(20):
        other = torch.linalg.qr(random(24, 24, seed=seed))[0]
        assert (tau_a - tau_b @ other).norm() > best


def test_each_column_is_scaled_by_least_squares() -> None:
    turned, wanted = random(30, 20, seed=1), random(30, 20, seed=2)
    for column, found in enumerate(scales(turned, wanted).tolist()):
        best = torch.linalg.lstsq(turned[:, column : column + 1], wanted[:, column : column + 1]).solution
        assert found == pytest.approx(float(best), rel=1e-12)


def test_null_columns_have_scale_zero() -> None:
    turned, wanted = random(30, 20, seed=1), random(30, 20, seed=2)
    turned[:, 3] = 0
    turned[:, 5] *= 1e-14
    turned[:, 7] *= 1e-10  # small, but above the bound
    found = scales(turned, wanted)
    assert (found == 0).nonzero().flatten().tolist() == [3, 5]
    assert scales(torch.zeros(3, 2), torch.ones(3, 2)).tolist() == [0, 0]


@pytest.mark.parametrize("shape", SHAPES)
def test_matrices_are_fused_as_defined(shape: tuple[int, int]) -> None:
    tau_a, tau_b = random(*shape, seed=1), random(*shape, seed=2)
    turned, scale = by_definition(tau_a, tau_b)
    torch.testing.assert_close(fused(tau_a, tau_b, 0.3), 0.7 * tau_a + 0.3 * turned * scale, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ranks", RANKS)
def test_factors_are_fused_as_their_products_are(shape: tuple[int, int], ranks: tuple[int, int]) -> None:
    a, b = factors(*shape, ranks[0], 1), factors(*shape, ranks[1], 2)
    a[1][:, 5] = 0  # a null column of τ_A is one of τ_B P
    merged_b, merged_a = fused_factors(a, b, 0.4)
    assert merged_b.shape[1] == ranks[0] + min(ranks)
    torch.testing.assert_close(merged_b @ merged_a, fused(a[0] @ a[1], b[0] @ b[1], 0.4), rtol=1e-8, atol=1e-8)


def test_a_rotation_is_recovered() -> None:
    """τ_A = τ_B Q with τ_B of full column rank: P = Q, so any α gives τ_A."""
    for shape in ((64, 48), (48, 48)):
        tau_b, q = random(*shape, seed=1), torch.linalg.qr(random(48, 48, seed=2))[0]
        left, right = alignment(tau_b @ q, tau_b)
        torch.testing.assert_close(torch.linalg.lstsq(tau_b, left).solution @ right.T, q, rtol=0, atol=1e-9)
        torch.testing.assert_close(fused(tau_b @ q, tau_b, 0.9), tau_b @ q)


def test_equal_inputs_give_themselves() -> None:
    for tau in (random(40, 24, seed=1), random(24, 40, seed=1), random(9, seed=1), random(8, 3, 2, 2, seed=1)):
        torch.testing.assert_close(fused(tau, tau, 0.5), tau)
    pair = factors(24, 40, 4, 1)
    merged_b, merged_a = fused_factors(pair, pair, 0.5)
    torch.testing.assert_close(merged_b @ merged_a, pair[0] @ pair[1])


def test_vectors_are_averaged_and_nothing_stays_nothing() -> None:
    a, b = random(7, seed=1), random(7, seed=2)
    torch.testing.assert_close(fused(a, b, 0.25), 0.75 * a + 0.25 * b)
    tau, none = random(6, 5, seed=1), torch.zeros(6, 5, dtype=torch.float64)
    torch.testing.assert_close(fused(tau, none, 0.5), 0.5 * tau)
    torch.testing.assert_close(fused(none, tau, 0.5), none)


def test_adapters_are_fused_module_by_module() -> None:
    a = {name: factors(12, 10, 2, seed) for seed, name in enumerate(("q", "v"))}
    b = {name: factors(12, 10, 3, seed + 9) for seed, name in enumerate(("q", "v"))}
    merged = ataf(a, b, 0.5)
    for name, (left, right) in merged.items():
        torch.testing.assert_close(left @ right, fused(a[name][0] @ a[name][1], b[name][0] @ b[name][1], 0.5))
    with pytest.raises(ValueError, match=r"v: adapter 1 has this module, adapter 2 does not"):
        ataf(a, {"q": b["q"]}, 0.5)
