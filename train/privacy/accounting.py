"""What the noised uploads of a run cost every client: ε at a given δ, and the noise that a wanted ε needs.

The mechanism is a Gaussian one with noise multiplier σ over a Poisson sample of rate q, T times in a row, T being the
steps of all training turns a client was asked to take. Its privacy loss distribution (PLD; Koskela et al. 2020,
Doroshenko et al. 2022) is composed by dp_accounting on a grid that rounds upwards: an upper bound, 5 to 10 % below the
one of Rényi moments for ε between 1 and 13. Neighbouring data sets differ by one example that is there or not; the
number of examples, and with it q and T, counts as public.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from adapters_store.paths import GLOBAL
from adapters_store.versions.manifest import Privacy
from train.sections import DPConfig

GRID: Final = 1e-3
"""Width of the PLD's grid: a tenth of a second a client, within 0.1 % of a grid ten times as fine for ε ≥ 0.1."""
LEAST_NOISE: Final = 0.1
"""Smallest noise multiplier; below it ε is in the tens of thousands."""
STARTS: Final = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, LEAST_NOISE)
"""Where the search for a noise multiplier begins, the largest that is too small: the PLD of much noise is quick."""
DECIMALS: Final = 4
"""ε and σ are rounded up to so many, so that a version does not depend on the last bits of a Fourier transform."""


@dataclass(frozen=True, order=True)
class Exposure:
    """What one client's examples are exposed to: q in (0, 1], the rate of its Poisson samples, and T steps."""

    rate: float
    steps: int


@dataclass(frozen=True)
class Costs:
    """What a run's uploads cost: ε by client, under each one's noise multiplier."""

    config: DPConfig
    noise_multipliers: Mapping[str, float]
    epsilons: Mapping[str, float]

    def of(self, client: str | None = None) -> Privacy:
        """What holds for one client's uploads; without a name, for every client's: the largest ε, the least noise."""
        return Privacy(
            epsilon=max(self.epsilons.values()) if client is None else self.epsilons[client],
            delta=self.config.delta,
            noise_multiplier=min(self.noise_multipliers.values()) if client is None else self.noise_multipliers[client],
            clip_norm=self.config.clip_norm,
            accountant="pld",
            covers="uploads",
        )

    def statements(self) -> dict[str, Privacy]:
        """What the manifest of each client's version says, and that of the global one."""
        return {**{client: self.of(client) for client in self.epsilons}, GLOBAL: self.of()}


@lru_cache(maxsize=4096)
def epsilon(exposure: Exposure, noise_multiplier: float, delta: float) -> float:
    """ε (an upper bound, rounded up) of T steps at rate q with noise multiplier σ."""
    if exposure.steps == 0:
        return 0.0
    accountant = _accountant()
    accountant.compose(_event(exposure, noise_multiplier))
    return _up(accountant.get_epsilon(delta))


@lru_cache(maxsize=4096)
def noise_for(exposure: Exposure, target: float, delta: float) -> float:
    """The smallest noise multiplier (rounded up) under which this costs no more than ε = ``target``; about a second."""
    from dp_accounting import LowerEndpointAndGuess, calibrate_dp_mechanism

    start = next((start for start in STARTS if epsilon(exposure, start, delta) > target), None)
    if start is None:
        return LEAST_NOISE
    bracket = LowerEndpointAndGuess(start, 2 * start)
    event = lambda sigma: _event(exposure, sigma)  # noqa: E731
    return _up(calibrate_dp_mechanism(_accountant, event, target, delta, bracket, tol=1e-4))


def costs(dp: DPConfig, noise_multipliers: Mapping[str, float], exposures: Mapping[str, Exposure]) -> Costs:
    """ε of these exposures, by client."""
    each = {client: epsilon(exposures[client], sigma, dp.delta) for client, sigma in noise_multipliers.items()}
    return Costs(dp, noise_multipliers, each)


def _accountant() -> Any:
    from dp_accounting.pld import PLDAccountant  # of the extra `privacy`

    return PLDAccountant(value_discretization_interval=GRID)


def _event(exposure: Exposure, noise_multiplier: float) -> Any:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

    step = PoissonSampledDpEvent(exposure.rate, GaussianDpEvent(noise_multiplier))
    return SelfComposedDpEvent(step, exposure.steps)


def _up(value: float) -> float:
    return math.ceil(value * 10**DECIMALS) / 10**DECIMALS
