"""From runs to figures: means over clients, deviations over seeds, paired differences."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any, Final

from train.compare.intervals import paired

WHERE: Final = ("seen", "style", "task")
"""A client's own test questions; its task in a style nobody has; a task nobody has, in its own style."""
Results = Mapping[str, Any]


def scores(results: Results, row: str, where: str) -> list[float]:
    """A score for every client that has such questions: of handwriting only the digit can be asked."""
    held = [client if where == "seen" else client["unseen"].get(where) for client in results["clients"]]
    return [one[row] for one in held if one is not None]


def summarise(rows: Mapping[str, tuple[str, Sequence[Results]]], against: Sequence[str]) -> dict[str, Any]:
    """Every row's figures by ``WHERE``. ``rows``: which row of which runs, one run a seed, by its name in the table."""
    found = {
        name: {where: [scores(run, row, where) for run in runs] for where in WHERE}
        for name, (row, runs) in rows.items()
    }
    return {
        name: {
            where: {
                "mean": _over_seeds([mean(clients) for clients in seeds]),
                "worst": _over_seeds([min(clients) for clients in seeds]),
                "minus": {other: paired(seeds, found[other][where]) for other in against if other != name},
            }
            for where, seeds in by_place.items()
        }
        for name, by_place in found.items()
    }


def by_task(rows: Mapping[str, tuple[str, Sequence[Results]]]) -> dict[str, Any]:
    """Every row's mean over the clients of a task, by task, over the seeds."""
    return {
        name: {task: _over_seeds([run["tasks"][task][row] for run in runs]) for task in runs[0]["tasks"]}
        for name, (row, runs) in rows.items()
    }


def markdown(summary: Mapping[str, Any], tasks: Mapping[str, Any], against: Sequence[str]) -> str:
    """A table of all rows by place, and one by task; accuracies and differences in points."""
    lines = ["| | own test: mean | worst | unseen style: mean | worst | unseen task: mean | worst |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, places in summary.items():
        shown = [_points(places[where][over]) for where in WHERE for over in ("mean", "worst")]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    for other in against:
        lines += ["", f"| minus {other} | own test | unseen style | unseen task |", "|---|---|---|---|"]
        compared = [name for name in summary if name != other]
        lines += [
            f"| {name} | " + " | ".join(_difference(summary[name][where]["minus"][other]) for where in WHERE) + " |"
            for name in compared
        ]
    names = list(next(iter(tasks.values())))
    lines += ["", f"| own test, by task | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(_points(found[task]) for task in names)} |" for name, found in tasks.items()]
    return "\n".join(lines) + "\n"


def _over_seeds(values: Sequence[float]) -> dict[str, Any]:
    return {"mean": mean(values), "std": stdev(values) if len(values) > 1 else 0.0, "seeds": list(values)}


def _points(over: Mapping[str, Any]) -> str:
    return f"{100 * over['mean']:.1f} ± {100 * over['std']:.1f}"


def _difference(found: Mapping[str, Any]) -> str:
    interval = found["seeds"]
    shown = f"{100 * found['mean']:+.1f}"
    return shown if interval is None else f"{shown} [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]"
