"""The accuracy table (docs/methods.md#tables) of the prompt family: methods, ablations, paired differences."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any, Final

from bench.prompt_study.accuracy import Job, Result, by_client
from bench.prompt_study.settings import ABLATIONS, COMPARED, SETTINGS, Values
from bench.prompt_study.tuning import row
from train.compare.intervals import over_seeds, paired

REFERENCES: Final = ("coop", "promptfl")
"""Rows that every other one is compared with, client by client."""
Tuned = Mapping[str, Mapping[str, Mapping[str, float]]]


def jobs(settings: Sequence[str], seeds: Sequence[int], tuned: Tuned, data: Values, federation: Values) -> list[Job]:
    """Every method and ablation of pFedMoAP in every setting and seed, at the configured rates where not tuned."""
    made = []
    for setting in settings:
        rates = tuned.get(setting, {})
        rows = [row(method, method, rates.get(method, {})) for method in COMPARED]
        rows += [row(name, "pfedmoap", rates.get("pfedmoap", {}), **changed) for name, changed in ABLATIONS.items()]
        made += [Job(setting, seed, rows, "test", data, federation) for seed in seeds]
    return made


def summarise(results: Sequence[Result]) -> dict[str, Any]:
    """By setting: every row's mean and worst client, its cost, its paired differences, and all accuracies."""
    return {
        setting: _setting([result for result in results if result.setting == setting])
        for setting in SETTINGS
        if any(result.setting == setting for result in results)
    }


def _setting(results: Sequence[Result]) -> dict[str, Any]:
    accuracy = {name: by_client(results, name) for name in ("zero-shot", *COMPARED, *ABLATIONS)}
    rows: dict[str, Any] = {}
    for name, clients in accuracy.items():
        against = ("pfedmoap",) if name in ABLATIONS else tuple(one for one in REFERENCES if one != name)
        rows[name] = {
            **over_seeds(clients),
            "minus": {other: paired(clients, accuracy[other]) for other in against},
            "cost": _cost(results, name),
        }
    every = {str(result.seed): {name: result.accuracy[name] for name in accuracy} for result in results}
    return {"rows": rows, "accuracy": every}


def _cost(results: Sequence[Result], name: str) -> dict[str, float]:
    costs = [result.cost[name] for result in results if name in result.cost]
    return {key: mean(cost[key] for cost in costs) for key in costs[0]} if costs else {}


def markdown(settings: Mapping[str, Any]) -> str:
    """Two tables a setting: the methods, and the ablations of pFedMoAP. Accuracies and differences are in points."""
    lines: list[str] = []
    for setting, summary in settings.items():
        rows = summary["rows"]
        lines += ["", f"**{setting}**", "", "| method | mean client | worst client | − CoOp | − PromptFL | " + COST]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for name in ("zero-shot", *COMPARED):
            shown = [_points(rows[name]["mean"]), _points(rows[name]["worst"])]
            shown += [_difference(rows[name]["minus"].get(other)) for other in REFERENCES]
            lines.append(f"| {name} | {' | '.join(shown)} | {_spent(rows[name]['cost'])} |")
        lines += ["", "| pFedMoAP with | mean client | worst client | − pFedMoAP |", "|---|---|---|---|"]
        for name in ABLATIONS:
            shown = [_points(rows[name]["mean"]), _points(rows[name]["worst"])]
            lines.append(f"| {name} | {' | '.join(shown)} | {_difference(rows[name]['minus']['pfedmoap'])} |")
    return "\n".join(lines[1:]) + "\n"


COST: Final = "KiB up | KiB down | s a round |"


def _points(over: Mapping[str, Any]) -> str:
    return f"{100 * over['mean']:.1f} ± {100 * over['std']:.1f}"


def _difference(found: Mapping[str, Any] | None) -> str:
    """The mean, and the interval over the seeds' means."""
    if found is None:
        return "–"
    low, high = found["seeds"] or (float("nan"), float("nan"))
    return f"{100 * found['mean']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _spent(cost: Mapping[str, float]) -> str:
    if not cost:
        return "– | – | –"
    return f"{cost['bytes_up'] / 1024:.1f} | {cost['bytes_down'] / 1024:.1f} | {cost['seconds']:.2f}"
