"""ε against dp_accounting's other entries and closed forms, and the noise found for a wanted ε."""

import math

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from opacus.accountants import RDPAccountant

from train.privacy.accounting import LEAST_NOISE, Exposure, costs, epsilon, noise_for
from train.sections import DPConfig

DELTA = 1e-5


@pytest.mark.parametrize(("rate", "sigma", "steps"), [(0.2, 1.5, 250), (0.05, 1.0, 500), (0.25, 0.6, 20)])
def test_epsilon_is_that_of_the_composed_privacy_loss(rate: float, sigma: float, steps: int) -> None:
    one = pld.from_gaussian_mechanism(sigma, sampling_prob=rate, value_discretization_interval=2e-4)
    exact = one.self_compose(steps).get_epsilon_for_delta(DELTA)
    found = epsilon(Exposure(rate, steps), sigma, DELTA)
    assert exact <= found <= 1.002 * exact
    renyi = RDPAccountant()
    renyi.history = [(sigma, rate, steps)]
    assert found < renyi.get_epsilon(DELTA)


def test_without_sampling_it_is_the_gaussian_mechanism() -> None:
    """T steps over all examples are one Gaussian mechanism with σ / √T (Balle and Wang 2018, in closed form)."""
    exact = dp_accounting.get_epsilon_gaussian(5.0 / math.sqrt(50), DELTA)
    assert epsilon(Exposure(1.0, 50), 5.0, DELTA) == pytest.approx(exact, rel=1e-3)


def test_epsilon_grows_with_steps_and_rate_and_falls_with_noise_and_delta() -> None:
    least = epsilon(Exposure(0.1, 50), 2.0, DELTA)
    assert 0 < least < epsilon(Exposure(0.1, 100), 2.0, DELTA)
    assert least < epsilon(Exposure(0.2, 50), 2.0, DELTA)
    assert least < epsilon(Exposure(0.1, 50), 1.0, DELTA)
    assert least < epsilon(Exposure(0.1, 50), 2.0, DELTA / 10)
    assert epsilon(Exposure(0.1, 0), 2.0, DELTA) == 0


@pytest.mark.parametrize(("rate", "steps", "target"), [(0.05, 300, 3.0), (1.0, 50, 1.0), (0.2, 20, 30.0)])
def test_the_noise_for_a_target_is_the_least_that_keeps_it(rate: float, steps: int, target: float) -> None:
    sigma = noise_for(Exposure(rate, steps), target, DELTA)
    assert epsilon(Exposure(rate, steps), sigma, DELTA) <= target
    assert epsilon(Exposure(rate, steps), sigma - 1e-3, DELTA) > target


def test_a_target_that_any_noise_keeps_gets_the_least() -> None:
    assert noise_for(Exposure(1e-3, 2), 5000.0, DELTA) == LEAST_NOISE
    assert noise_for(Exposure(0.5, 0), 1.0, DELTA) == LEAST_NOISE


def test_costs_are_each_clients_own_and_the_largest_for_all() -> None:
    dp = DPConfig(clip_norm=0.5, noise_multiplier=2.0, delta=DELTA)
    exposures = {"ann": Exposure(0.1, 50), "bob": Exposure(0.4, 50), "eve": Exposure(0.4, 0)}
    found = costs(dp, {"ann": 3.0, "bob": 2.0, "eve": 2.5}, exposures)
    assert found.epsilons["eve"] == 0 < found.epsilons["ann"] < found.epsilons["bob"]
    assert (found.of("ann").epsilon, found.of("ann").noise_multiplier) == (found.epsilons["ann"], 3.0)
    assert found.of().epsilon == found.epsilons["bob"]
    assert found.statements().keys() == {"ann", "bob", "eve", "global"}
    assert (found.of().clip_norm, found.of().noise_multiplier, found.of().covers) == (0.5, 2.0, "uploads")
