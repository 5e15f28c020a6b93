"""Arithmetic on low-rank products BA without forming them; A (r, d_in), B (d_out, r), in float64."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def product_norm(b: Tensor, a: Tensor) -> float:
    """‖BA‖_F by the r × r Grams: ‖BA‖² = ⟨BᵀB, AAᵀ⟩."""
    b, a = b.to(torch.float64), a.to(torch.float64)
    squared = float(((b.T @ b) * (a @ a.T)).sum())
    return math.sqrt(max(squared, 0.0))


def stacked(factors: Sequence[tuple[Tensor, Tensor]], weights: Sequence[float]) -> tuple[Tensor, Tensor]:
    """(B, A) of rank Σ r_k with BA = Σ_k w_k B_k A_k exactly, from pairs (B_k, A_k)."""
    b = torch.cat([weight * b.to(torch.float64) for (b, _), weight in zip(factors, weights, strict=True)], dim=1)
    a = torch.cat([a.to(torch.float64) for _, a in factors], dim=0)
    return b, a


def relative_error(approximation: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """(‖B̂Â − BA‖_F, ‖BA‖_F) for pairs (B̂, Â) and (B, A)."""
    difference = stacked([approximation, exact], [1.0, -1.0])
    return product_norm(*difference), product_norm(*exact)
