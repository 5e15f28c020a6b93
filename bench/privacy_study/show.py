"""Accuracy against ε: rows over seeds, a table, a curve."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

from matplotlib.figure import Figure

from bench.privacy_study.federations import Outcome

NAMES: Final = {"scenes_colour": "scenes, one colour a client", "digits_dirichlet": "handwriting, Dirichlet(0.3)"}


def summarise(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A row for each setting, method and ε (None: plain): mean and deviation over the seeds, and every seed's."""
    rows = []
    for key in dict.fromkeys((o.job.setting, o.job.method, o.job.epsilon) for o in outcomes):
        of = [o for o in outcomes if (o.job.setting, o.job.method, o.job.epsilon) == key]
        row: dict[str, Any] = {"setting": key[0], "method": key[1], "epsilon": key[2] if of[0].job.private else None}
        for field in ("mean", "worst", "zero_shot"):
            values = [getattr(o, field) for o in of]
            row[field] = {"mean": mean(values), "std": stdev(values) if len(values) > 1 else 0.0, "seeds": values}
        row |= {
            "lr": of[0].job.lr,
            "spent": [o.spent for o in of],
            "noise_multipliers": [o.noise_multipliers for o in of],
            "training_seconds": [o.seconds for o in of],
        }
        rows.append(row)
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each setting and method, a column for each ε: mean of the clients / worst client, in per cent."""
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
    heads = ["plain" if e is None else f"ε = {e:g}" for e in epsilons]
    lines = [f"| data | method | zero-shot | {' | '.join(heads)} |", "|---|---|---|" + "---|" * len(epsilons)]
    for key in dict.fromkeys((row["setting"], row["method"]) for row in rows):
        of = {row["epsilon"]: row for row in rows if (row["setting"], row["method"]) == key}
        cells = [f"{_percent(of[e]['mean'])} / {_percent(of[e]['worst'])}" for e in epsilons]
        zero_shot = _percent(next(iter(of.values()))["zero_shot"])
        lines.append(f"| {NAMES[key[0]]} | `{key[1]}` | {zero_shot} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(cell: Mapping[str, Any]) -> str:
    return f"{100 * cell['mean']:.1f} ± {100 * cell['std']:.1f}"


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A panel for each setting, a line for each method over ε, plain training as the last point."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    figure = Figure(figsize=(4.5 * len(settings), 3.4), layout="constrained")
    for panel, setting in zip(figure.subplots(1, len(settings), squeeze=False)[0], settings, strict=True):
        here = [row for row in rows if row["setting"] == setting]
        epsilons = list(dict.fromkeys(row["epsilon"] for row in here))
        for method in dict.fromkeys(row["method"] for row in here):
            cells = [row["mean"] for row in here if row["method"] == method]
            means, deviations = [cell["mean"] for cell in cells], [cell["std"] for cell in cells]
            panel.errorbar(range(len(cells)), means, deviations, marker="o", capsize=3, label=method)
        panel.axhline(here[0]["zero_shot"]["mean"], color="grey", linestyle=":", label="zero-shot")
        panel.set(title=NAMES[setting], xlabel="ε of every client's uploads at δ = 1e-5", ylabel="test accuracy")
        panel.set_xticks(range(len(epsilons)), ["plain" if e is None else f"{e:g}" for e in epsilons])
        panel.legend(fontsize="small")
    figure.savefig(path, dpi=90)
