"""What is tuned, on images of another seed than those of the table.

The clients' rate by how well each does in its own style; everything else for each left-out style by the other styles'
scores where they are left out. What is shared: the left-out style's client of that seed is among those merged there.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final

import torch

from bench.merging_study.clients import STYLES, Training, adapters
from bench.merging_study.scoring import accuracy
from bench.merging_study.ways import BASELINES, Clients, Tuned, anchored_mean
from train.merging.means import scaled_mean

SEED: Final = 10
RATES: Final = (1e-3, 3e-3, 1e-2)
FACTORS: Final = (0.3, 0.5, 1.0, 1.5, 2.0, 3.0)
COEFFICIENT_RATES: Final = (0.05, 0.15)
SAP_FACTORS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
"""SAP leaves an eighth of the mean's norm."""
GAINS: Final = (1.0, 1.3, 1.6)
Scores = Mapping[str, Mapping[str, float]]  # of every left-out style: candidate → accuracy on it


def client_rate(kept: Path) -> tuple[float, dict[str, float]]:
    """The clients' learning rate by which they do best in their own styles alone, and what each gives."""
    torch.set_num_threads(1)
    found = {}
    for lr in RATES:
        trained = adapters(Training(SEED, lr), kept)
        found[f"{lr:g}"] = mean(accuracy(trained[style], SEED, style, "held back") for style in STYLES)
    return float(max(found, key=found.__getitem__)), found


def candidates(left_out: str, lr: float, kept: Path) -> dict[str, dict[str, float]]:
    """Accuracy on the left-out style of every baseline at every factor, and of anchored merging at its settings."""
    torch.set_num_threads(1)
    trained = adapters(Training(SEED, lr), kept)
    clients = Clients([trained[style] for style in STYLES if style != left_out], SEED)
    found: dict[str, dict[str, float]] = {}
    for name, way in BASELINES.items():
        merged = way(clients)
        factors = SAP_FACTORS if name.startswith("SAP") else FACTORS
        found[name] = {
            f"{factor:g}": accuracy(scaled_mean([merged], factor), SEED, left_out, "held back") for factor in factors
        }
    found["anchored"] = {}
    for rate in COEFFICIENT_RATES:
        fitted = anchored_mean(Tuned({}, rate, 1.0))(clients)
        for gain in GAINS:
            score = accuracy(scaled_mean([fitted], gain), SEED, left_out, "held back")
            found["anchored"][f"{rate:g}/{gain:g}"] = score
    return found


def chosen(scores: Mapping[str, Mapping[str, Mapping[str, float]]], left_out: str) -> Tuned:
    """What does best over the other styles. ``scores``: what ``candidates`` gave for every style."""
    others = [of for style, of in scores.items() if style != left_out]
    factors = {name: float(_best([of[name] for of in others])) for name in BASELINES}
    rate, gain = _best([of["anchored"] for of in others]).split("/")
    return Tuned(factors, float(rate), float(gain))


def _best(of_styles: Sequence[Mapping[str, float]]) -> str:
    total = {candidate: mean(of[candidate] for of in of_styles) for candidate in of_styles[0]}
    return max(total, key=total.__getitem__)


def as_dict(tuned: Tuned) -> dict[str, Any]:
    return {"factors": dict(tuned.factors), "anchored_lr": tuned.anchored_lr, "anchored_gain": tuned.anchored_gain}
