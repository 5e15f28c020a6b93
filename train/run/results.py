"""What a run found: ``results.json``, the table on the terminal, and ``curves.png``."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from train.data.examples import UNSEEN
from train.federation.backend import Ending
from train.federation.evaluate import Scores, unseen_row
from train.methods.contract import ClientInfo
from train.privacy.accounting import Costs

ROWS = ("zero_shot", "local", "global", "personal")


def summarise(
    run: Mapping[str, Any],
    clients: Sequence[ClientInfo],
    n_test: Mapping[str, int],
    endings: Mapping[str, Ending],
    local: Mapping[str, Ending],
    metrics: Sequence[Mapping[str, Any]],
    costs: Costs | None,
) -> dict[str, Any]:
    """The content of ``results.json``; a row not measured is null. ``run`` holds method, family, seed, rounds.

    ``costs``: those of the uploads where they were made differentially private.
    """
    entries = [
        _entry(client, n_test[client.id], _with_local(endings[client.id], local.get(client.id)), costs)
        for client in clients
    ]
    turns = [line for line in metrics if line["phase"] in ("train", "personal")]
    unseen = {kind: [entry["unseen"][kind] for entry in entries if kind in entry["unseen"]] for kind in UNSEEN}
    return {
        **run,
        "clients": entries,
        "mean": _over(entries, _mean),
        "worst": _over(entries, min),
        "tasks": _by_name(entries, "tasks"),
        "metrics": _by_name(entries, "metrics"),
        "unseen": {kind: {"mean": _over(of, _mean), "worst": _over(of, min)} for kind, of in unseen.items() if of},
        "bytes_up": sum(line["bytes_up"] for line in turns),
        "bytes_down": sum(line["bytes_down"] for line in turns),
        "seconds": round(sum(line["seconds"] for line in turns), 3),
        "privacy": costs.of().model_dump(mode="json") if costs else None,
    }


def _with_local(ending: Ending, local: Ending | None) -> dict[str, Scores]:
    """A client's scores by row, with what it reached alone as the row `local`."""
    alone = {name.replace("personal", "local"): scores for name, scores in local.scores.items()} if local else {}
    return {**ending.scores, **alone}


def _entry(client: ClientInfo, n_test: int, scores: Mapping[str, Scores], costs: Costs | None) -> dict[str, Any]:
    private = costs.of(client.id) if costs else None
    measured = [row for row in ROWS if row in scores]
    kinds = [kind for kind in UNSEEN if unseen_row(kind, "personal") in scores]
    return {
        "id": client.id,
        "n_train": client.examples,
        "n_test": n_test,
        **{row: scores[row].mean if row in measured else None for row in ROWS},
        "epsilon": private.epsilon if private else None,
        "noise_multiplier": private.noise_multiplier if private else None,
        "tasks": {row: scores[row].by_task for row in measured},
        "metrics": {row: scores[row].metrics for row in measured},
        "unseen": {
            kind: {row: scores[unseen_row(kind, row)].mean if row in measured else None for row in ROWS}
            for kind in kinds
        },
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _over(
    entries: Sequence[Mapping[str, float | None]], reduce: Callable[[list[float]], float]
) -> dict[str, float | None]:
    """Every row reduced over these clients; null where it is for one of them."""
    columns = {row: [entry[row] for entry in entries] for row in ROWS}
    numbers = {row: [value for value in column if value is not None] for row, column in columns.items()}
    return {row: reduce(numbers[row]) if len(numbers[row]) == len(entries) else None for row in ROWS}


def _by_name(entries: Sequence[Mapping[str, Any]], key: str) -> dict[str, dict[str, float | None]]:
    """For each task or metric that is there, every row's mean over the clients that have it."""
    names = sorted({name for entry in entries for name in entry[key]["personal"]})
    return {
        name: _over(
            [
                {row: entry[key].get(row, {}).get(name) for row in ROWS}
                for entry in entries
                if name in entry[key]["personal"]
            ],
            _mean,
        )
        for name in names
    }


def table(results: Mapping[str, Any]) -> Table:
    """Test accuracy in per cent, a line a client; then their mean and worst, and the mean of what is unseen."""
    drawn = Table(title=f"{results['method']}: test accuracy, %")
    drawn.add_column("client")
    for row in ROWS:
        drawn.add_column(row.replace("_", "-"), justify="right")
    lines = [(client["id"], client) for client in results["clients"]]
    unseen = [(f"unseen {kind}", found["mean"]) for kind, found in results["unseen"].items()]
    for name, values in [*lines, ("mean", results["mean"]), ("worst", results["worst"]), *unseen]:
        drawn.add_row(name, *("–" if values[row] is None else f"{100 * values[row]:.1f}" for row in ROWS))
    return drawn


def draw_curves(results: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Training loss of every client by round, beside its test accuracy in every row of the table."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    losses, bars = figure.subplots(1, 2)
    for client in results["clients"]:
        turns = [line for line in metrics if line.get("client") == client["id"] and line.get("loss") is not None]
        losses.plot([line["round"] for line in turns], [line["loss"] for line in turns], marker="o", label=client["id"])
    losses.set(xlabel="round (the last is the personal turn)", ylabel="mean training loss", yscale="log")
    losses.legend(fontsize="small")
    measured = [row for row in ROWS if results["mean"][row] is not None]
    names = [client["id"] for client in results["clients"]]
    width = 0.8 / len(measured)
    for i, row in enumerate(measured):
        places = [x + (i - (len(measured) - 1) / 2) * width for x in range(len(names))]
        bars.bar(places, [client[row] for client in results["clients"]], width, label=row.replace("_", "-"))
    bars.set(ylabel="test accuracy", ylim=(0, 1), xticks=range(len(names)))
    bars.set_xticklabels(names, rotation=20, ha="right", fontsize="small")
    bars.legend(fontsize="small")
    figure.savefig(path, dpi=110)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """All of it, or none where the disk is full."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(content, indent=2) + "\n")
    partial.rename(path)
