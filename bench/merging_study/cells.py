"""One cell of the study: a seed and the style that is left out, with every merge scored on what it never saw."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch

from bench.merging_study.clients import STYLES, Training, adapters
from bench.merging_study.scoring import accuracy
from bench.merging_study.ways import (
    BASELINES,
    PLAIN,
    Clients,
    Tuned,
    Way,
    anchored_mean,
    magnitude,
    masked_at_random,
    of_norm,
    pruned,
    pruned_products,
    signed,
    size,
    styled,
)
from train.merging.adapter import Adapter
from train.merging.means import exact_mean, scaled_mean

RATIOS: Final = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
EPOCHS: Final = (1, 3)
SEEN: Final = 24  # images of every seen style
Row = dict[str, float]
Part = Literal["main", "variants", "ruined"]
"""Variants: other ratios, options, numbers of anchors and lengths of training, and what else was tried. Ruined: clients
that trained at ``RUINED``, a rate at which they forget what the base knows."""
RUINED: Final = 2e-2
SHRINKAGES: Final = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


@dataclass
class Cell:
    """Scores of merges by name: "unseen", "seen" (mean of the other styles) and "norm" ‖ΔW‖_F."""

    seed: int
    left_out: str
    rows: dict[str, Row]

    def score(self, name: str, adapter: Adapter, *, seen: bool = True) -> Adapter:
        row = {"unseen": accuracy(adapter, self.seed, self.left_out, "test"), "norm": size(adapter)}
        if seen:
            others = [accuracy(adapter, self.seed, style, "test", SEEN) for style in STYLES if style != self.left_out]
            row["seen"] = sum(others) / len(others)
        self.rows[name] = row
        return adapter


def play(seed: int, left_out: str, lr: float, tuned: Tuned, kept: Path, part: Part) -> dict[str, Row]:
    """The rows of a cell, kept in a file."""
    told = hashlib.sha256(repr((lr, tuned)).encode()).hexdigest()[:8]  # another tuning is another cell
    path = kept / f"{part}-{seed}-{left_out}-{told}.json"
    if path.exists():
        found: dict[str, Row] = json.loads(path.read_text())
        return found
    torch.set_num_threads(1)
    trained = adapters(Training(seed, lr), kept)
    clients = Clients([trained[style] for style in STYLES if style != left_out], seed)
    cell = Cell(seed, left_out, {})
    if part == "main":
        _main(cell, clients, tuned)
        _alone(cell, trained)
    elif part == "ruined":
        _ruined(cell, clients)
    else:
        _ratios(cell, clients)
        _variants(cell, clients, tuned)
        for epochs in EPOCHS:
            _epochs(cell, adapters(Training(seed, lr, epochs), kept), epochs)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(cell.rows))
    partial.rename(path)
    return cell.rows


def _main(cell: Cell, clients: Clients, tuned: Tuned) -> None:
    cell.score("zero-shot", scaled_mean(clients.adapters, 0.0))
    for name, way in PLAIN.items():
        cell.score(name, way(clients))
    for name, way in BASELINES.items():
        cell.score(name, scaled_mean([way(clients)], tuned.factors[name]))
    cell.score("magnitude .95", magnitude(0.95)(clients))
    _with_controls(cell, clients, "SAP .95", pruned(0.95), 0.95)
    _with_controls(cell, clients, "SAP .9", pruned(0.9), 0.9)
    _with_controls(cell, clients, "anchored", anchored_mean(tuned), 0.5)


def _ruined(cell: Cell, clients: Clients) -> None:
    """All factors of plain shrinkage are shown; none is chosen."""
    cell.score("zero-shot", scaled_mean(clients.adapters, 0.0))
    for name, way in PLAIN.items():
        cell.score(name, way(clients))
    for factor in SHRINKAGES:
        cell.score(f"mean × {factor:g}", scaled_mean(clients.adapters, factor))
    for ratio in (0.95, 0.99):
        _with_controls(cell, clients, f"SAP {_short(ratio)}", pruned(ratio), ratio)


def _with_controls(cell: Cell, clients: Clients, name: str, way: Way, ratio: float, *, seen: bool = True) -> None:
    """Beside a merge, the mean scaled and a random mask scaled, both to the merge's norm."""
    norm = size(cell.score(name, way(clients), seen=seen))
    cell.score(f"{name}: scaled mean", of_norm(exact_mean(clients.adapters), norm), seen=seen)
    cell.score(f"{name}: random mask", of_norm(masked_at_random(ratio)(clients), norm), seen=seen)


def _alone(cell: Cell, trained: Mapping[str, Adapter]) -> None:
    for style in STYLES:
        if style != cell.left_out:
            cell.score(f"alone: {style}", trained[style], seen=False)


def _ratios(cell: Cell, clients: Clients) -> None:
    for ratio in RATIOS:
        if ratio not in (0.9, 0.95):
            _with_controls(cell, clients, f"SAP {_short(ratio)}", pruned(ratio), ratio, seen=False)


def _variants(cell: Cell, clients: Clients, tuned: Tuned) -> None:
    ways: dict[str, Way] = {
        "SAP .95, scope tensor": pruned(0.95, scope="tensor"),
        "SAP .95, space delta": pruned_products(0.95),
        "SAP .95, rescale norm": pruned(0.95, rescale="norm"),
        "SAP .95, rescale robust": pruned(0.95, rescale="robust"),
        "SAP .95, 8 anchors": pruned(0.95, count=8),
        "SAP .95, 16 anchors": pruned(0.95, count=16),
        "SAP .95, 64 anchors": pruned(0.95, count=64),
        "signed saliency .5": signed(0.5),
        "signed saliency .95": signed(0.95),
        "saliency on corrupted anchors .5": styled(0.5),
        "saliency on corrupted anchors .95": styled(0.95),
        "anchored, anchors as they are": anchored_mean(tuned, corrupted=False),
        "anchored, one coefficient a layer": anchored_mean(tuned, of_the_mean=True),
    }
    for name, way in ways.items():
        cell.score(name, way(clients), seen=name.startswith("anchored"))


def _epochs(cell: Cell, trained: Mapping[str, Adapter], epochs: int) -> None:
    clients = Clients([trained[style] for style in STYLES if style != cell.left_out], cell.seed)
    name = f", {epochs} epoch{'s' if epochs > 1 else ''}"
    for plain, way in PLAIN.items():
        cell.score(plain + name, way(clients), seen=False)
    cell.score("SAP .95" + name, pruned(0.95)(clients), seen=False)


def _short(ratio: float) -> str:
    return f"{ratio:g}".removeprefix("0")
