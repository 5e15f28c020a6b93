"""Arithmetic on low-rank products BA without forming them; A (r, d_in), B (d_out, r), in float64."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

Factors = tuple[Tensor, Tensor]
"""(B (d_out, r), A (r, d_in)) of ΔW = BA; a LoRA's scale α/r is folded into B."""


def product_norm(b: Tensor, a: Tensor) -> float:
    """‖BA‖_F by the r × r Grams: ‖BA‖² = ⟨BᵀB, AAᵀ⟩."""
    b, a = b.to(torch.float64), a.to(torch.float64)
    squared = float(((b.T @ b) * (a @ a.T)).sum())
    return math.sqrt(max(squared, 0.0))


def stacked(factors: Sequence[Factors], weights: Sequence[float]) -> Factors:
    """(B, A) of rank Σ r_k with BA = Σ_k w_k B_k A_k exactly, from pairs (B_k, A_k)."""
    b = torch.cat([weight * b.to(torch.float64) for (b, _), weight in zip(factors, weights, strict=True)], dim=1)
    a = torch.cat([a.to(torch.float64) for _, a in factors], dim=0)
    return b, a


def relative_error(approximation: Factors, exact: Factors) -> tuple[float, float]:
    """(‖B̂Â − BA‖_F, ‖BA‖_F) for pairs (B̂, Â) and (B, A)."""
    difference = stacked([approximation, exact], [1.0, -1.0])
    return product_norm(*difference), product_norm(*exact)


def recompressed(b: Tensor, a: Tensor, rank: int) -> tuple[Factors, float]:
    """The best factors of this rank, and ‖B̂Â − BA‖_F / ‖BA‖_F (0 for a zero product).

    QR of B and of Aᵀ, then an SVD of the small core; √σ goes to each side. Ranks that BA does not have are zeros, so
    that every module of an adapter can have the same rank.
    """
    q_b, r_b = torch.linalg.qr(b.to(torch.float64))
    q_a, r_a = torch.linalg.qr(a.to(torch.float64).T)
    u, sigma, vh = torch.linalg.svd(r_b @ r_a.T, full_matrices=False)
    return _truncated(q_b @ u, sigma, vh @ q_a.T, rank)


def dense_recompressed(delta: Tensor, rank: int) -> tuple[Factors, float]:
    """The same for a ΔW (d_out, d_in) that has no factors."""
    u, sigma, vh = torch.linalg.svd(delta.to(torch.float64), full_matrices=False)
    return _truncated(u, sigma, vh, rank)


def padded(factors: Factors, rank: int) -> Factors:
    """The same product from factors of this rank, which must not be below theirs: zero columns of B, rows of A."""
    b, a = factors
    return pad(b, (0, rank - b.shape[1])), pad(a, (0, 0, 0, rank - a.shape[0]))


def _truncated(u: Tensor, sigma: Tensor, vh: Tensor, rank: int) -> tuple[Factors, float]:
    root = sigma[:rank].sqrt()
    norm = float(sigma.norm())
    error = float(sigma[rank:].norm()) / norm if norm else 0.0
    return padded((u[:, :rank] * root, root[:, None] * vh[:rank]), rank), error
