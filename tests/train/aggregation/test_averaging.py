"""Weighted means by hand."""

import pytest
import torch

from train.aggregation.averaging import shares, weighted_mean

pytestmark = pytest.mark.numeric


def test_shares() -> None:
    assert shares([3, 1], "examples") == [0.75, 0.25]
    assert shares([3, 1, 4], "uniform") == [1 / 3] * 3


def test_three_clients_by_hand() -> None:
    clients = [{"v": torch.tensor([1.0, 0.0])}, {"v": torch.tensor([2.0, 4.0])}, {"v": torch.tensor([5.0, -4.0])}]
    mean = weighted_mean(clients, shares([2, 1, 1], "examples"))
    assert mean["v"].tolist() == [2.25, 0.0]


def test_the_mean_is_accumulated_in_float64_and_keeps_the_dtype() -> None:
    clients = [{"v": torch.full((1,), 1e8)}, {"v": torch.ones(1)}, {"v": torch.full((1,), -1e8)}]
    mean = weighted_mean(clients, [1.0, 1.0, 1.0])
    assert mean["v"].item() == 1.0  # float32 would lose it
    assert mean["v"].dtype == torch.float32


def test_weights_and_clients_must_pair_up() -> None:
    with pytest.raises(ValueError, match="zip"):
        weighted_mean([{"v": torch.ones(1)}], [0.5, 0.5])
