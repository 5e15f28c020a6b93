"""ATAF: a task vector turned and scaled towards another, then both fused (the method's notes; docs/methods.md#ataf).

Per weight matrix, with τ = W − W_C (d_out, d_in): M = τ_Bᵀ τ_A = U Σ Vᵀ, P = U_r V_rᵀ with r the numerical rank of M
(orthogonal Procrustes, on the input side; a partial isometry where M is singular, because any completion of it would be
arbitrary and change the merge), Λ = diag(λ_i) by least squares column by column, and
τ = (1 − α) τ_A + α τ_B P Λ. The asymmetry is the method's: A's coordinates are kept.

Letters: (B, A) are LoRA factors, of rank r_a and r_b; their scale is folded into B. Everything is float64 inside.
"""

from typing import Final

import torch
from torch import Tensor

from train.lowrank import Factors
from train.merging.adapter import Adapter, together

NULL: Final = 1e-12
"""Singular values and column norms at most this fraction of the largest are zero (docs/methods.md#ataf)."""


def ataf(a: Adapter, b: Adapter, alpha: float) -> dict[str, Factors]:
    """Two adapters fused module by module. Raises ValueError, in one sentence, where their modules differ."""
    return {module: fused_factors(own, other, alpha) for module, (own, other) in together([a, b])}


def fused(tau_a: Tensor, tau_b: Tensor, alpha: float) -> Tensor:
    """τ, float64 of the inputs' shape. Further dimensions (a convolution's) are columns; without any, no alignment."""
    a, b = tau_a.to(torch.float64), tau_b.to(torch.float64)
    if a.dim() < 2:
        return (1 - alpha) * a + alpha * b
    left, right = alignment(a.flatten(1), b.flatten(1))
    turned = left @ right.T
    turned *= scales(turned, a.flatten(1))
    return turned.mul_(alpha).add_(a.flatten(1), alpha=1 - alpha).reshape(a.shape)


def alignment(tau_a: Tensor, tau_b: Tensor) -> tuple[Tensor, Tensor]:
    """(L, R) with τ_B P = L Rᵀ; L (d_out, k), R (d_in, k), k the smaller dimension; no M larger than k × k is formed.

    Columns of L beyond the rank of M are zero.
    """
    if tau_a.shape[0] >= tau_a.shape[1]:
        u, v = _isometry(tau_b.T @ tau_a)
        return tau_b @ u, v
    q, r_a = torch.linalg.qr(tau_a.T)
    r_b = torch.linalg.qr(tau_b.T, mode="r")[1]  # τ_B Q_b = R_bᵀ: Q_b itself is not needed
    u, v = _isometry(r_b @ r_a.T)
    return r_b.T @ u, q @ v


def fused_factors(a: Factors, b: Factors, alpha: float) -> Factors:
    """τ of two LoRA task vectors as factors of rank r_a + min(r_a, r_b), exactly, in O((d_out + d_in) r²)."""
    (b_a, a_a), (b_b, a_b) = ((f.to(torch.float64), g.to(torch.float64)) for f, g in (a, b))
    q, r_a = torch.linalg.qr(a_a.T)
    r_b = torch.linalg.qr(a_b.T, mode="r")[1]
    u, v = _isometry(r_b @ (b_b.T @ b_a) @ r_a.T)
    left, right = b_b @ (r_b.T @ u), q @ v
    q_left, r_left = torch.linalg.qr(left)  # columns of τ_B P have the norms, and the angles to τ_A, of those of R Rᵀ
    scale = scales(r_left @ right.T, (q_left.T @ b_a) @ a_a)
    return torch.cat([(1 - alpha) * b_a, alpha * left], 1), torch.cat([a_a, right.T * scale], 0)


def scales(turned: Tensor, wanted: Tensor) -> Tensor:
    """λ (d_in,): λ_i minimises ‖wanted_i − λ turned_i‖ over columns of (d, d_in); 0 for a null column of ``turned``."""
    norms = torch.linalg.vector_norm(turned, dim=0)
    null = norms <= NULL * norms.max()
    inner = torch.linalg.vecdot(turned, wanted, dim=0)
    return torch.where(null, 0.0, inner / norms.where(~null, 1.0) ** 2)


def _isometry(m: Tensor) -> tuple[Tensor, Tensor]:
    """(U, V) with U Vᵀ = U_r V_rᵀ: the columns of U beyond the rank are zero."""
    u, sigma, vh = torch.linalg.svd(m, full_matrices=False)
    return u * (sigma > NULL * sigma[0]), vh.T
