"""Pictures of the merging study."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.merging_study.clients import STYLES

RATIOS: Final = {"0": 0.0, ".5": 0.5, ".8": 0.8, ".9": 0.9, ".95": 0.95, ".98": 0.98, ".99": 0.99}
BARS: Final = ("zero-shot", "FedAvg of factors", "exact mean", "SAP .95", "anchored")


def draw_ratios(rows: Mapping[str, Any], path: Path) -> None:
    """Accuracy on the left-out style over ρ, and over the length of local training."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    ratios, lengths = figure.subplots(1, 2)
    _ratios(ratios, rows)
    _lengths(lengths, rows)
    figure.savefig(path, dpi=110)


def draw_styles(rows: Mapping[str, Any], path: Path) -> None:
    """Accuracy on every style where it is left out."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(BARS)
    for i, name in enumerate(BARS):
        places = [x + (i - (len(BARS) - 1) / 2) * width for x in range(len(STYLES))]
        axes.bar(places, [100 * rows[name]["by_style"][style] for style in STYLES], width, label=name)
    axes.set(ylabel="accuracy where left out, %")
    axes.set_xticks(range(len(STYLES)), STYLES)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)


def _ratios(axes: Axes, rows: Mapping[str, Any]) -> None:
    """Accuracy on the unseen style over ρ, of SAP and of both controls at its norm."""
    for ending, label in (
        ("", "SAP"),
        (": random mask", "random mask, same norm"),
        (": scaled mean", "mean, same norm"),
    ):
        shown = {f"SAP {ratio}{ending}": value for ratio, value in RATIOS.items() if ratio != "0"}
        measured = [rows["exact mean"], *(rows[name] for name in shown)]
        axes.errorbar(
            range(len(measured)),
            [100 * row["unseen"]["mean"] for row in measured],
            [100 * row["unseen"]["std"] for row in measured],
            marker="o",
            capsize=3,
            label=label,
        )
    for name, style in (("zero-shot", ":"), ("anchored", "--")):
        axes.axhline(100 * rows[name]["unseen"]["mean"], linestyle=style, color="black", label=name)
    axes.set(xlabel="ρ, share of entries masked", ylabel="accuracy on the left-out style, %")
    axes.set_xticks(range(len(RATIOS)), list(RATIOS))
    axes.legend(fontsize="small")


def _lengths(axes: Axes, rows: Mapping[str, Any]) -> None:
    """For how long the clients trained."""
    by_epochs = {name: [f"{name}, 1 epoch", f"{name}, 3 epochs", name] for name in ("exact mean", "SAP .95")}
    for name, shown in by_epochs.items():
        axes.plot(["1", "3", "10"], [100 * rows[row]["unseen"]["mean"] for row in shown], marker="o", label=name)
    axes.axhline(100 * rows["zero-shot"]["unseen"]["mean"], linestyle=":", color="black", label="zero-shot")
    axes.set(xlabel="local epochs", ylabel="accuracy on the left-out style, %")
    axes.legend(fontsize="small")
