"""Pilot's auxiliary losses (Xiong et al., AAAI 2025; docs/methods.md#pilot): functions of one batch, each a scalar.

Letters: B images, N visual tokens, C width of the language model, T experts.
"""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor


def difference_loss(task: Tensor, client: Tensor, form: Literal["per_image", "reference"]) -> Tensor:
    """L_d: how much of the task adapter's output the client adapter's repeats; both (B, N, C).

    ``per_image``: ‖x_tᵀ x_s‖_F² / N² of each image's L2-normalised tokens, mean over the batch. ``reference``: X and Y
    are the row-normalised (B, N·C) flattenings, the mean square of XᵀY; as in the reference code the norms count as
    constants in the gradient. Neither forms the large product where Grams are smaller: ‖XᵀY‖_F² = ⟨XXᵀ, YYᵀ⟩.
    """
    if form == "reference":
        x, y = (each / _norms(each) for each in (task.flatten(1), client.flatten(1)))
        return ((x @ x.T) * (y @ y.T)).sum() / x.shape[1] ** 2
    x, y = (F.normalize(each, dim=-1) for each in (task, client))
    tokens, width = x.shape[1:]
    squares = (x.mT @ y).square() if width <= tokens else (x @ x.mT) * (y @ y.mT)
    return squares.sum((1, 2)).mean() / tokens**2


def balance_loss(probabilities: Tensor) -> Tensor:
    """L_b = T² · mean_e(mean_n P_e · mean_n 1[e is n's most probable]) of an image's router probabilities, mean over
    the images (B, N, T).

    1 where every image uses all experts alike, T where each uses one alone; the second factor's count has no gradient.
    """
    experts = probabilities.shape[-1]
    chosen = F.one_hot(probabilities.argmax(-1), experts).to(probabilities.dtype)
    return experts**2 * (probabilities.mean(1) * chosen.mean(1)).mean()


def z_loss(logits: Tensor) -> Tensor:
    """L_z = mean(logsumexp²) of the router's logits (…, T), which keeps them small."""
    return logits.logsumexp(-1).square().mean()


def _norms(rows: Tensor) -> Tensor:
    """(B, 1) of rows (B, …), without a gradient; a row of zeros stays one when it is divided."""
    norms: Tensor = rows.detach().norm(dim=1, keepdim=True)
    return norms.clamp(min=1e-12)
