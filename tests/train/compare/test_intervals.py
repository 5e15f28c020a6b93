"""The figures behind the table, against numbers worked out by hand."""

import pytest

from train.compare.intervals import interval, over_seeds, paired


def test_an_interval_is_students() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found == pytest.approx((2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-4)  # t(0.975, 2) = 4.30265
    assert interval([1.0]) is None


def test_mean_and_worst_client_over_seeds() -> None:
    found = over_seeds([[0.5, 0.7], [0.9, 0.7]])
    assert found["mean"]["mean"] == pytest.approx(0.7)
    assert found["mean"]["std"] == pytest.approx(0.2 / 2**0.5)
    assert found["worst"]["seeds"] == [0.5, 0.7]


def test_differences_are_those_of_the_same_client() -> None:
    found = paired([[0.5, 0.9], [0.4, 0.8]], [[0.4, 0.8], [0.4, 0.9]])
    assert found["mean"] == pytest.approx(0.025)
    assert (found["better"], found["equal"], found["worse"]) == (2, 1, 1)
    assert found["seeds"] == pytest.approx((0.025 - 12.7062 * 0.075, 0.025 + 12.7062 * 0.075), abs=1e-4)
    low, high = found["pairs"]
    assert high - low < found["seeds"][1] - found["seeds"][0]


def test_other_numbers_of_clients_are_refused() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        paired([[0.5, 0.9]], [[0.4]])
