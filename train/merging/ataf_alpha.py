"""ATAF's α without labels: the candidate whose predictions stay closest to those of both models (docs/methods.md#ataf).

S(α) = mean over inputs of JSD(A, merged(α)) + JSD(B, merged(α)), natural logarithm, so each term is at most ln 2.
Letters: n inputs (of a language model: answer positions), C classes or tokens.
"""

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

CANDIDATES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)


def choose_alpha(
    logits_a: Tensor,
    logits_b: Tensor,
    merged: Callable[[float], Tensor],
    candidates: Sequence[float] = CANDIDATES,
) -> tuple[float, dict[float, float]]:
    """The α of smallest S, the first of equal ones, and S of every candidate. All logits are (n, C)."""
    scores = {}
    for alpha in candidates:
        logits = merged(alpha)
        scores[alpha] = float((divergence(logits_a, logits) + divergence(logits_b, logits)).mean())
    return min(scores, key=scores.__getitem__), scores


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen–Shannon divergence (n,) in float64 of the distributions with logits p and q (n, C)."""
    log_p, log_q = (logits.to(torch.float64).log_softmax(-1) for logits in (p, q))
    log_m = torch.logaddexp(log_p, log_q) - torch.log(torch.tensor(2.0, dtype=torch.float64))
    return (_relative_entropy(log_p, log_m) + _relative_entropy(log_q, log_m)) / 2


def _relative_entropy(log_p: Tensor, log_m: Tensor) -> Tensor:
    # where p is 0 its logarithm may be −∞, and the term is 0
    return torch.where(log_p.isneginf(), 0.0, log_p.exp() * (log_p - log_m)).sum(-1)
