"""From cells to figures: means over styles, deviations over seeds, paired differences over seeds and styles."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any, Final

from bench.merging_study.clients import STYLES
from bench.merging_study.ways import BASELINES
from train.compare.intervals import paired

Cells = Mapping[int, Mapping[str, Mapping[str, Mapping[str, float]]]]  # seed → left-out style → merge → figures
ALONE: Final = "alone: "
COMPARED: Final = {
    "SAP .9": ("zero-shot", "exact mean", "SAP .9: scaled mean", "SAP .9: random mask"),
    "SAP .95": ("zero-shot", "exact mean", *BASELINES, "SAP .95: scaled mean", "SAP .95: random mask"),
    "anchored": ("zero-shot", "exact mean", *BASELINES, "anchored: scaled mean", "anchored: random mask", "SAP .95"),
    "exact mean": ("zero-shot", "FedAvg of factors"),
    "FedAvg of factors": ("zero-shot",),
}
"""Every merge's own controls, of its norm, and what else it is held against."""


def summarise(cells: Cells) -> dict[str, Any]:
    """Every merge's figures, and the paired differences."""
    names = list(next(iter(next(iter(cells.values())).values())))
    rows = {name: _row(cells, name) for name in names if not name.startswith(ALONE)}
    alone = (("clients alone, mean", mean), ("clients alone, best", max)) if len(rows) < len(names) else ()
    for name, reduce in alone:
        rows[name] = {"unseen": over_seeds([mean(styles) for styles in _alone(cells, reduce)])}
    minus = {
        name: {other: {what: paired(_of(cells, name, what), _of(cells, other, what)) for what in ("unseen", "seen")}
               for other in others if other in names}
        for name, others in COMPARED.items() if name in names
    }  # fmt: skip
    return {"rows": rows, "minus": minus}


def _of(cells: Cells, name: str, what: str) -> list[list[float]]:
    return [[of_style[style][name][what] for style in STYLES if style in of_style] for of_style in cells.values()]


def _row(cells: Cells, name: str) -> dict[str, Any]:
    """Over the seeds that have this merge."""
    having = {seed: of_style for seed, of_style in cells.items() if all(name in rows for rows in of_style.values())}
    first = next(iter(next(iter(having.values())).values()))[name]
    over = {what: over_seeds([mean(styles) for styles in _of(having, name, what)]) for what in first}
    styles = list(next(iter(having.values())))
    by_style = {style: mean(of_style[style][name]["unseen"] for of_style in having.values()) for style in styles}
    return {**over, "by_style": by_style}


def _alone(cells: Cells, reduce: Callable[[list[float]], float]) -> list[list[float]]:
    """Of each left-out style what single clients reach on it; no server could choose the best one."""
    return [
        [reduce([row["unseen"] for name, row in rows.items() if name.startswith(ALONE)]) for rows in of_style.values()]
        for of_style in cells.values()
    ]


def over_seeds(values: Sequence[float]) -> dict[str, Any]:
    """Mean and deviation, and the seeds' values."""
    return {"mean": mean(values), "std": stdev(values) if len(values) > 1 else 0.0, "seeds": list(values)}


def markdown(summary: Mapping[str, Any]) -> str:
    """A table of all merges, and one of the differences; accuracies and differences in points."""
    lines = ["| merge | unseen style | seen styles | ‖ΔW‖ |", "|---|---|---|---|"]
    for name, row in summary["rows"].items():
        shown = [_points(row.get("unseen")), _points(row.get("seen")), _number(row.get("norm"))]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    lines += [
        "",
        "| difference | unseen style | better / worse | seen styles | better / worse |",
        "|---|---|---|---|---|",
    ]
    for name, others in summary["minus"].items():
        for other, by in others.items():
            cells = [part for what in ("unseen", "seen") for part in _difference(by[what])]
            lines.append(f"| {name} − {other} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _points(over: Mapping[str, Any] | None) -> str:
    return "–" if over is None else f"{100 * over['mean']:.1f} ± {100 * over['std']:.1f}"


def _number(over: Mapping[str, Any] | None) -> str:
    return "–" if over is None else f"{over['mean']:.2f}"


def _difference(found: Mapping[str, Any]) -> tuple[str, str]:
    """The mean with the interval over the seeds' means, and how many seed × style pairs are better and worse."""
    low, high = found["seeds"] or (float("nan"), float("nan"))
    return f"{100 * found['mean']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]", f"{found['better']} / {found['worse']}"
