"""KnOTS: merging in a basis that all adapters share (Stoica et al. 2025, "Model merging with SVD to tie the Knots",
§4, with TIES as the merge).

[ΔW_1 … ΔW_K] (d_out, K d_in) = U Σ [V_1ᵀ … V_Kᵀ]; the aligned task vectors Σ V_kᵀ (R, d_in) are merged, here by TIES
over all modules, and U brings the result back: ΔW = U · TIES(Σ V_kᵀ). Σ stands with V, as in the configurations of the
authors' code (in the paper's figure with U, where TIES would not see how large a direction is). That is a LoRA of rank
R ≤ Σ r_k already, with B = U, so nothing is recompressed. The SVD is taken in factors, through QR of [B_1 … B_K] and
of every A_kᵀ: no d_out × d_in matrix is formed. Their λ is tuned on validation data (.6 in their code for a ViT-B);
here ``scale``, 1 unless given.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from train.lowrank import Factors, padded
from train.merging.adapter import Adapter, together
from train.merging.selection import Scope
from train.merging.ties import DENSITY, ties_streamed

NULL = 1e-12
"""Singular values at most this fraction of the largest are no direction (the authors' code: 1e-5, absolute)."""


def knots(
    adapters: Sequence[Adapter], *, density: float = DENSITY, scope: Scope = "global", scale: float = 1.0
) -> dict[str, Factors]:
    """KnOTS-TIES as factors (U, merged Σ Vᵀ) of rank Σ r_k, padded with zeros where [ΔW_1 … ΔW_K] has less."""
    bases: dict[str, Tensor] = {}
    tasks: list[dict[str, Tensor]] = [{} for _ in adapters]
    for module, factors in together(adapters):
        bases[module], aligned = align(factors)
        for task, vector in zip(tasks, aligned, strict=True):
            task[module] = vector
    merged = ((module, (bases[module], scale * vector)) for module, vector in ties_streamed(tasks, density, scope))
    return {module: padded(factors, sum(len(adapter[module][1]) for adapter in adapters)) for module, factors in merged}


def align(factors: Sequence[Factors]) -> tuple[Tensor, list[Tensor]]:
    """U (d_out, R) with orthonormal columns, and every Σ V_kᵀ (R, d_in): B_k A_k = U Σ V_kᵀ."""
    q, r = torch.linalg.qr(torch.cat([b for b, _ in factors], dim=1))
    right = [torch.linalg.qr(a.T) for _, a in factors]  # A_kᵀ = Q_k R_k
    columns = r.split([b.shape[1] for b, _ in factors], dim=1)
    cores = [part @ r_a.T for part, (_, r_a) in zip(columns, right, strict=True)]
    u, sigma, _ = torch.linalg.svd(torch.cat(cores, dim=1), full_matrices=False)
    u = u[:, sigma > NULL * sigma[0]]
    return q @ u, [u.T @ core @ q_a.T for core, (q_a, _) in zip(cores, right, strict=True)]
