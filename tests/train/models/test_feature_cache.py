"""The feature cache: nothing is encoded twice, limits hold, and what is kept never changes a result."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from train.data import Example
from train.models.clip import AugmentedImages, CachedFeatures, ResidentClip
from train.models.feature_cache import GROUP, MIB, FeatureCache

pytestmark = pytest.mark.numeric

WIDTH = 8
FEATURE_MIB = 4 * WIDTH / MIB


def example(number: int, uid: str = "x") -> Example:
    return Example(np.full((2, 2, 3), number, dtype=np.uint8), "", "", "classify", 0, uid, "flat")


class Encoder:
    """Counts what it is asked for; a feature says which image it is of."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, examples: Sequence[Example]) -> Tensor:
        self.asked.append(len(examples))
        return torch.stack([torch.full((WIDTH,), float(e.image[0, 0, 0])) for e in examples])


def test_an_image_is_encoded_once_whatever_its_name() -> None:
    cache, encode = FeatureCache("base", 1), Encoder()
    first = cache.features([example(1, "a"), example(2, "b")], encode)
    again = cache.features([example(2, "c"), example(1, "d")], encode)
    assert encode.asked == [2]
    assert torch.equal(first, again.flip(0))


def test_a_group_is_computed_whole() -> None:
    """So that a feature does not depend on which of its neighbours were kept."""
    cache, encode = FeatureCache("base", 1), Encoder()
    cache.features([example(1)], encode)
    cache.features([example(n % 250) for n in range(GROUP + 3)], encode)
    assert encode.asked == [1, GROUP, 3]


def test_memory_is_bounded() -> None:
    cache, encode = FeatureCache("base", 3 * FEATURE_MIB), Encoder()
    for number in (1, 2, 3, 1, 4, 1, 2):
        assert float(cache.features([example(number)], encode)[0, 0]) == number
    assert encode.asked == [1] * 5  # 1, 2, 3, 4 and once more 2, which had to go


def test_the_disk_outlives_the_process_and_keeps_bases_apart(tmp_path: Path) -> None:
    encode = Encoder()
    FeatureCache("one", 1, tmp_path, 1).features([example(1), example(2)], encode)
    assert torch.equal(FeatureCache("one", 1, tmp_path, 1).features([example(2)], encode)[0], torch.full((WIDTH,), 2.0))
    assert encode.asked == [2]
    FeatureCache("two", 1, tmp_path, 1).features([example(2)], encode)
    assert encode.asked == [2, 1]


def test_the_disk_is_bounded_and_drops_the_oldest(tmp_path: Path) -> None:
    encode, limit = Encoder(), 4 * FEATURE_MIB
    for number in range(6):
        FeatureCache("one", 1, tmp_path, limit).features([example(number)], encode)
    later = Encoder()
    for number in (5, 4, 3, 2):
        FeatureCache("one", 1, tmp_path, limit).features([example(number)], later)
    assert later.asked == []
    FeatureCache("one", 1, tmp_path, limit).features([example(0)], later)
    assert later.asked == [1]


def test_augmented_images_are_never_cached(clip: ResidentClip) -> None:
    random = np.random.default_rng(0)
    examples = [
        Example(random.integers(0, 256, (64, 64, 3), dtype=np.uint8), "", "", "classify", 0, str(n), "flat")
        for n in range(3)
    ]
    plain = clip.labelled(examples, None)
    assert isinstance(plain, CachedFeatures)
    changed = clip.labelled(examples, torch.Generator().manual_seed(1))
    assert isinstance(changed, AugmentedImages)
    first, second = changed.features([0, 1, 2]), changed.features([0, 1, 2])
    assert not torch.allclose(first, second, atol=1e-3)
    again = clip.labelled(examples, torch.Generator().manual_seed(1)).features([0, 1, 2])
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(plain.features([0, 1, 2]), first)
