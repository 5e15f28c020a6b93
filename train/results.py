"""What a run found: ``results.json``, the table on the terminal, and ``curves.png``."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.table import Table

from train.accounting import Costs
from train.backends.base import Ending
from train.methods.base import ClientInfo

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
    entries = []
    for client in clients:
        scores = dict(endings[client.id].scores)
        if client.id in local:
            scores["local"] = local[client.id].scores["personal"]
        entry: dict[str, Any] = {"id": client.id, "n_train": client.examples, "n_test": n_test[client.id]}
        entry |= {row: scores[row].mean if row in scores else None for row in ROWS}
        private = costs.of(client.id) if costs else None
        entry["epsilon"] = private.epsilon if private else None
        entry["noise_multiplier"] = private.noise_multiplier if private else None
        entry["tasks"] = {row: score.by_task for row, score in scores.items()}
        entries.append(entry)
    turns = [line for line in metrics if line["phase"] in ("train", "personal")]
    return {
        **run,
        "clients": entries,
        "mean": {row: _over(entries, row, lambda values: sum(values) / len(values)) for row in ROWS},
        "worst": {row: _over(entries, row, min) for row in ROWS},
        "bytes_up": sum(line["bytes_up"] for line in turns),
        "bytes_down": sum(line["bytes_down"] for line in turns),
        "seconds": round(sum(line["seconds"] for line in turns), 3),
        "privacy": costs.of().model_dump(mode="json") if costs else None,
    }


def _over(entries: Sequence[Mapping[str, Any]], row: str, reduce: Any) -> float | None:
    values = [entry[row] for entry in entries]
    return None if None in values else float(reduce(values))


def table(results: Mapping[str, Any]) -> Table:
    """Test accuracy in per cent, a line a client."""
    drawn = Table(title=f"{results['method']}: test accuracy, %")
    drawn.add_column("client")
    for row in ROWS:
        drawn.add_column(row.replace("_", "-"), justify="right")
    lines = [(client["id"], client) for client in results["clients"]]
    for name, values in [*lines, ("mean", results["mean"]), ("worst", results["worst"])]:
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
    path.write_text(json.dumps(content, indent=2) + "\n")
