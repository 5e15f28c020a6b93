"""How far two float32 evaluations of one thing may lie apart: a bound from rounding and size, of no one processor.

Processors and numbers of threads sum in other orders. n roundings of u each, one after another, add up as a walk does:
a result is off by no more than λ √n u of its size, but for a chance of 2 exp(−λ²/2) (Higham and Mary 2019, "A new
approach to probabilistic rounding error analysis"). Libraries sum in blocks and stay far below.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

UNIT: Final = torch.finfo(torch.float32).eps / 2
"""u: the relative error of one rounding."""
WALK: Final = 4.0
"""λ: standard deviations of the walk; were every rounding as large as it can be, 7 in 10,000 results lay beyond."""


def block(width: int, head: int, tokens: int, hidden: int) -> int:
    """Additions one after another in a transformer block: queries, scores, mixture, output, and an MLP."""
    return width + head + tokens + width + width + hidden


# additions from the input to a result of the embedded bases (their config.json)
CLIP_IMAGE: Final = 192 + 5 * block(192, 64, 65, 768) + 192
CLIP_TEXT: Final = 3 * block(128, 64, 32, 512) + 128
CLIP_LOGITS: Final = CLIP_IMAGE + CLIP_TEXT + 128
SOFT_TOKENS: Final = 192 + 4 * block(192, 64, 65, 768) + 192 + 256
LLAVA_LOGITS: Final = SOFT_TOKENS + 4 * block(256, 64, 128, 704) + 256
BACK: Final = 2
"""Times as many to a gradient: a backward pass sums as often as the forward pass that it follows."""
PROBABILITY: Final = 24.1 / (2 * 128**0.5)
"""What probabilities are off where the embedded CLIP's features, of norm 1, are off by 1: a softmax passes on half of
what its logits are, a logit is τ = 24.1 times a cosine, and a class's direction meets 1/√128 of an error."""


def rounding(terms: int, unit: float = UNIT) -> float:
    """How far two results of ``terms`` additions one after another may be apart, relative to their size."""
    return WALK * unit * terms**0.5


def check_close(found: Any, expected: Any, terms: int, size: float | None = None, unit: float = UNIT) -> None:
    """AssertionError unless ‖found − expected‖ ≤ ``rounding(terms)`` · size, over tensors, lists or numbers alike.

    ``size``: ‖expected‖, unless larger numbers cancel on the way to it: theirs then. ``unit``: of another type's.
    """
    one, other = (torch.as_tensor(value, dtype=torch.float64).detach() for value in (found, expected))
    assert one.shape == other.shape, f"{list(one.shape)} where {list(other.shape)} is expected"
    size = float(other.norm()) if size is None else size
    apart, bound = float((one - other).norm()), rounding(terms, unit) * size
    assert apart <= bound, f"{apart:.2e} apart, {bound:.2e} allowed: {rounding(terms, unit):.1e} of {size:.2e}"


def check_probabilities(found: Mapping[str, float], expected: Mapping[str, float]) -> None:
    """``check_close`` of the embedded CLIP's probabilities by class."""
    assert found.keys() == expected.keys()
    check_close([found[name] for name in expected], list(expected.values()), CLIP_LOGITS, PROBABILITY)


def joined(tensors: Any) -> Tensor:
    """All of them as one vector, in float64."""
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])
