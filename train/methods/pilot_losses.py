"""Pilot's auxiliary losses (Xiong et al., AAAI 2025; METHODS §3): pure functions of one batch, each a scalar.

Letters: B images, N visual tokens, C width of the language model, T experts.
"""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor


def difference_loss(task: Tensor, client: Tensor, form: Literal["per_image", "reference"]) -> Tensor:
    """L_d: how much of the task adapter's output the client adapter's repeats; both (B, N, C).

    ``per_image``: ‖x_tᵀ x_s‖_F² / N² of each image's L2-normalised tokens, mean over the batch. ``reference``: X and Y
    are the row-normalised (B, N·C) flattenings, the mean square of XᵀY. Neither forms the large product where Grams
    are smaller: ‖XᵀY‖_F² = ⟨XXᵀ, YYᵀ⟩.
    """
    if form == "reference":
        x, y = (F.normalize(each.flatten(1), dim=-1) for each in (task, client))
        return ((x @ x.T) * (y @ y.T)).sum() / x.shape[1] ** 2
    x, y = (F.normalize(each, dim=-1) for each in (task, client))
    tokens, width = x.shape[1:]
    squares = (x.mT @ y).square() if width <= tokens else (x @ x.mT) * (y @ y.mT)
    return squares.sum((1, 2)).mean() / tokens**2


def balance_loss(probabilities: Tensor) -> Tensor:
    """L_b = T² · mean_e(mean_n P_e · mean_n 1[e is n's most probable]) of the router's probabilities (…, T).

    1 where all experts are used alike, T where one is used alone; the count of the second factor has no gradient.
    """
    experts = probabilities.shape[-1]
    flat = probabilities.reshape(-1, experts)
    chosen = F.one_hot(flat.argmax(-1), experts).to(flat.dtype)
    return experts**2 * (flat.mean(0) * chosen.mean(0)).mean()


def z_loss(logits: Tensor) -> Tensor:
    """L_z = mean(logsumexp²) of the router's logits (…, T), which keeps them small."""
    return logits.logsumexp(-1).square().mean()
