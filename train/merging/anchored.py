"""Anchored merging: how much of every client's LoRA to take, layer by layer, decided by a loss on public anchors.

ΔW_l = (1/K) Σ_k c_kl B_kl A_kl: K coefficients a layer, fitted by gradient descent from 1, the exact mean. It is
AdaMerging's layer-wise form (Yang et al., ICLR 2024, Eq. 8) with anchors in the place of unlabelled test data, so that
the server needs nothing of the clients but their LoRAs.

Letters: K clients, L layers (adapted linears), r rank.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from train.lowrank import Factors
from train.merging.adapter import Adapter, together

Loss = Callable[[Adapter], Tensor]
"""A scalar, differentiable in the adapter's B; it may draw other images at every call."""


def anchored(
    adapters: Sequence[Adapter], loss: Loss, *, steps: int = 40, lr: float = 0.05, gain: float = 1.0
) -> tuple[dict[str, Factors], Tensor]:
    """The merge in float32, of rank Σ r_k, and its coefficients (K, L), layers in file order.

    Adam fits them; then they are multiplied by ``gain``: anchors ask for less of the LoRAs than a style does which is
    further from the base.
    """
    layers = [(module, [(b.float(), a.float()) for b, a in factors]) for module, factors in together(adapters)]
    coefficients = torch.ones(len(adapters), len(layers), requires_grad=True)
    descent = torch.optim.Adam([coefficients], lr=lr)
    for _ in range(steps):
        descent.zero_grad()
        torch.autograd.backward(loss(_merged(layers, coefficients)))
        descent.step()
    found = gain * coefficients.detach()
    return _merged(layers, found), found


def _merged(layers: Sequence[tuple[str, Sequence[Factors]]], coefficients: Tensor) -> dict[str, Factors]:
    share = coefficients / len(coefficients)
    return {
        module: (
            torch.cat([c * b for c, (b, _) in zip(share[:, layer], factors, strict=True)], dim=1),
            torch.cat([a for _, a in factors], dim=0),
        )
        for layer, (module, factors) in enumerate(layers)
    }
