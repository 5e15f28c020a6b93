"""Which entries of many tensors are the lowest: exactly ⌊ρ n⌋ of them, without holding the tensors together."""

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Final, Literal

import torch
from torch import Tensor

Scope = Literal["global", "tensor"]
"""Whether ⌊ρ n⌋ counts over all tensors together or within each."""

DIGIT: Final = 16
"""Bits settled in one pass: the threshold of float64 scores takes four passes, each with 2¹⁶ counters."""


def kept_masks(scores: Callable[[], Iterable[Tensor]], ratio: float, scope: Scope) -> Iterator[Tensor]:
    """For every tensor that ``scores()`` yields, in its order, a mask of its shape: False at the ⌊ratio · n⌋ lowest.

    Signed scores are fine; of equal ones those of lower index go first, earlier tensors before later ones. ``scores``
    is called again for every pass and must yield the same each time; one tensor is alive at a time.
    """
    if scope == "tensor":
        for tensor in scores():
            yield from _kept([tensor].copy, ratio)
    else:
        yield from _kept(scores, ratio)


def masked_count(ratio: float, n: int) -> int:
    """⌊ρ n⌋ for ρ as it is written in decimals: .29 of 100 entries are 29, which binary fractions would make 28."""
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio: {ratio} given, it must be from 0 to 1.")
    return math.floor(Fraction(ratio).limit_denominator(10**9) * n)


def _kept(scores: Callable[[], Iterable[Tensor]], ratio: float) -> Iterator[Tensor]:
    cut, equal = _cut(scores, masked_count(ratio, sum(tensor.numel() for tensor in scores())))
    for tensor in scores():
        kept, used = _mask(tensor, cut, equal)
        equal -= used
        del tensor  # may be large, and a merge of K adapters waits here with K of them
        yield kept


def _mask(tensor: Tensor, cut: int, equal: int) -> tuple[Tensor, int]:
    """False below the cut and at the first ``equal`` entries on it; and how many were on it."""
    keys = _keys(tensor)
    masked = keys < cut
    first = (keys == cut).nonzero().flatten()[:equal]
    masked[first] = True
    return ~masked.reshape(tensor.shape), len(first)


def _cut(scores: Callable[[], Iterable[Tensor]], count: int) -> tuple[int, int]:
    """The key of the count-th lowest entry and how many entries with this key are among the lowest (radix select)."""
    prefix, left = 0, count
    for shift in range(64 - DIGIT, -1, -DIGIT):
        top = shift == 64 - DIGIT
        counters = torch.zeros(2**DIGIT, dtype=torch.int64)
        for tensor in scores():
            keys = _keys(tensor)
            inside = keys if top else keys[(keys >> (shift + DIGIT)) == prefix]
            digits = (inside >> shift) + 2 ** (DIGIT - 1) if top else (inside >> shift) & (2**DIGIT - 1)
            counters += torch.bincount(digits, minlength=2**DIGIT)
        below = counters.cumsum(0)
        digit = int((below < left).sum())
        left -= int(below[digit - 1]) if digit else 0
        prefix = digit - 2 ** (DIGIT - 1) if top else (prefix << DIGIT) | digit
    return prefix, left


def _keys(scores: Tensor) -> Tensor:
    """(n,) int64 in the order of the float64 scores: IEEE 754 bits, those of negative numbers reversed."""
    bits = (scores.detach().to(torch.float64).flatten() + 0.0).view(torch.int64)  # + 0.0: −0 counts as 0
    return bits ^ ((bits >> 63) & torch.iinfo(torch.int64).max)
