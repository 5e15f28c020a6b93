"""The comparison as a picture: every row's accuracy over its seeds, beside what it sent."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure

from train.compare.runs import Row


def draw(rows: Sequence[Row], of: str, path: Path) -> None:
    """Bars are means over the seeds, dots the seeds; on the right, accuracy against bytes up and down."""
    figure = Figure(figsize=(11, 1.5 + 0.5 * max(4, len(rows))), layout="constrained")
    bars, costs = figure.subplots(1, 2)
    for place, row in enumerate(rows):
        seeds = [100 * run.results["mean"][of] for run in row.runs]
        moved = mean(run.results["bytes_up"] + run.results["bytes_down"] for run in row.runs) / 1e6
        colour = f"C{place % 10}"
        bars.barh(place, mean(seeds), color=colour, alpha=0.5)
        bars.plot(seeds, [place] * len(seeds), "o", color=colour, markersize=4)
        costs.plot(moved, mean(seeds), "o", color=colour)
        costs.annotate(row.name, (moved, mean(seeds)), textcoords="offset points", xytext=(6, 4), fontsize="small")
    bars.set(xlabel=f"{of} accuracy, % (mean of the clients)", yticks=range(len(rows)))
    bars.set_yticklabels([row.name for row in rows], fontsize="small")
    bars.invert_yaxis()
    costs.set(xlabel="MB sent in the whole run, up and down", ylabel=f"{of} accuracy, %")
    costs.margins(x=0.3, y=0.2)
    figure.savefig(path, dpi=110)
