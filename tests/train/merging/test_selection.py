"""Exactly ⌊ρ n⌋ lowest entries, against sorting everything at once."""

import weakref
from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from train.merging.selection import kept_masks, masked_count

pytestmark = pytest.mark.numeric

VALUES = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 2.0]), st.floats(-1e9, 1e9, allow_subnormal=True))
TENSORS = st.lists(st.lists(VALUES, min_size=1, max_size=12), min_size=1, max_size=4)


def sorted_mask(values: Sequence[float], ratio: float) -> list[bool]:
    """Python's stable sort of (value, index)."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    masked = set(order[: int(Fraction(str(ratio)) * len(values))])
    return [i not in masked for i in range(len(values))]


@settings(max_examples=60, deadline=None)
@given(TENSORS, st.sampled_from([0.0, 0.1, 0.29, 0.5, 0.95, 1.0]))
def test_masks_equal_those_of_a_stable_sort(drawn: list[list[float]], ratio: float) -> None:
    tensors = [torch.tensor(values, dtype=torch.float64) for values in drawn]
    everything = [value for values in drawn for value in values]
    together = torch.cat(list(kept_masks(lambda: tensors, ratio, "global"))).tolist()
    assert together == sorted_mask(everything, ratio)
    for mask, values in zip(kept_masks(lambda: tensors, ratio, "tensor"), drawn, strict=True):
        assert mask.tolist() == sorted_mask(values, ratio)


def test_equal_scores_go_by_index_and_tensor() -> None:
    tensors = [torch.ones(2, 2), torch.ones(3)]
    first, second = kept_masks(lambda: tensors, 5 / 7, "global")
    assert first.tolist() == [[False, False], [False, False]]
    assert second.tolist() == [False, True, True]


def test_ratio_is_read_in_decimals_and_has_bounds() -> None:
    assert masked_count(0.29, 100) == 29  # int(0.29 * 100) is 28
    assert masked_count(1 - 0.9, 10) == 1
    for ratio in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"^ratio: .* from 0 to 1\.$"):
            masked_count(ratio, 10)


def test_one_tensor_at_a_time() -> None:
    made: list[weakref.ref[Tensor]] = []

    def scores() -> Iterator[Tensor]:
        for seed in range(6):
            made.append(weakref.ref(tensor := torch.rand(8, generator=torch.Generator().manual_seed(seed))))
            assert sum(ref() is not None for ref in made) <= 2  # the one before goes only when the next has come
            yield tensor

    assert sum(int((~mask).sum()) for mask in kept_masks(scores, 0.5, "global")) == 24
    assert len(made) == 6 * 6  # to count, four digits, to mask
