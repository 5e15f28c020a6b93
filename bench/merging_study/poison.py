"""What one client with all labels wrong does to a merge, and whether the merge contains that client at all."""

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any, Final

import torch

from bench.merging_study.clients import STYLES, Training, adapters
from bench.merging_study.scoring import accuracy
from bench.merging_study.ways import Clients, Tuned, anchored_mean, pruned, size
from train.merging.adapter import Adapter
from train.merging.means import exact_mean, factor_mean

LEFT_OUT: Final = 2
"""Left-out styles of a seed: those that follow the poisoned one."""


def play(seed: int, lr: float, tuned: Mapping[str, Tuned], kept: Path) -> dict[str, Any]:
    """For each of some left-out styles, a merge with the client as it is, poisoned, and without it."""
    torch.set_num_threads(1)
    place = seed % len(STYLES)
    style = STYLES[place]
    clean = adapters(Training(seed, lr), kept)
    poisoned = clean | adapters(Training(seed, lr, poisoned=style), kept)
    cells = {}
    for left_out in (*STYLES, *STYLES)[place + 1 : place + 1 + LEFT_OUT]:
        ways: dict[str, Callable[[Clients], Adapter]] = {
            "FedAvg of factors": lambda c: factor_mean(c.adapters),
            "exact mean": lambda c: exact_mean(c.adapters),
            "SAP .95": pruned(0.95),
            "anchored": anchored_mean(tuned[left_out]),
        }
        groups = {
            "clean": [clean[s] for s in STYLES if s != left_out],
            "poisoned": [poisoned[s] for s in STYLES if s != left_out],
            "without": [clean[s] for s in STYLES if s not in (left_out, style)],
        }
        cells[left_out] = {
            name: {
                group: accuracy(way(Clients(members, seed)), seed, left_out, "test")
                for group, members in groups.items()
            }
            for name, way in ways.items()
        }
    return {
        "poisoned": style,
        "own_accuracy": {
            "clean": accuracy(clean[style], seed, style, "test"),
            "poisoned": accuracy(poisoned[style], seed, style, "test"),
        },
        "moved": _moved(clean, poisoned),
        "left_out": cells,
    }


def _moved(clean: Mapping[str, Adapter], poisoned: Mapping[str, Adapter]) -> float:
    """‖mean with − mean without the wrong labels‖_F / ‖mean‖_F over all styles: 0 if the mean left the client out."""
    means = [exact_mean([of[style] for style in STYLES]) for of in (clean, poisoned)]
    difference = {
        module: (torch.cat([b, -means[1][module][0]], 1), torch.cat([a, means[1][module][1]], 0))
        for module, (b, a) in means[0].items()
    }
    return size(difference) / size(means[0])


def summarise(found: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds and left-out styles of every merge by group, and every seed's own figures."""
    cells = [cell for run in found.values() for cell in run["left_out"].values()]
    means = {
        name: {group: mean(cell[name][group] for cell in cells) for group in of_groups}
        for name, of_groups in cells[0].items()
    }
    return {"mean": means, "by_seed": {str(seed): run for seed, run in found.items()}}


def markdown(found: Mapping[int, Mapping[str, Any]]) -> str:
    """Accuracy on the left-out style in per cent, and what the wrong labels did to their client and to the mean."""
    means = summarise(found)["mean"]
    lines = ["| merge | clean | one client poisoned | without that client |", "|---|---|---|---|"]
    for name, of in means.items():
        lines.append(f"| {name} | " + " | ".join(f"{100 * of[g]:.1f}" for g in ("clean", "poisoned", "without")) + " |")
    own = [run["own_accuracy"] for run in found.values()]
    clean, wrong = (100 * mean(one[group] for one in own) for group in ("clean", "poisoned"))
    moved = mean(run["moved"] for run in found.values())
    lines += ["", f"The client alone: {clean:.1f} with its labels, {wrong:.1f} with wrong ones."]
    lines += [f"The exact mean of all moves by {moved:.2f} of its norm."]
    return "\n".join(lines) + "\n"
