"""The comparison as Markdown: accuracy over the seeds, paired differences with intervals, bytes and seconds."""

from collections.abc import Sequence
from statistics import mean, stdev

from train.compare.intervals import paired
from train.compare.runs import CompareError, Row, Run
from train.run.results import ROWS


def markdown(rows: Sequence[Row], of: str, against: Row) -> str:
    """Two tables: what every row reaches, and how far its ``of`` (a row of ``results.json``) is from that of another.

    Differences are of the same clients in the same seeds, with Student's 95 % interval over the seeds.
    """
    measured = [kind for kind in ROWS if any(run.results["mean"][kind] is not None for row in rows for run in row.runs)]
    titles = [kind.replace("_", "-") for kind in measured]
    lines = [
        f"| % | {' | '.join(titles)} | {of}, worst client | MB up | MB down | seconds | seeds |",
        "|---" * (len(titles) + 6) + "|",
    ]
    for row in rows:
        cells = [_percent([run.results["mean"][kind] for run in row.runs]) for kind in measured]
        cells.append(_percent([run.results["worst"][of] for run in row.runs]))
        cells += [_megabytes(row, "bytes_up"), _megabytes(row, "bytes_down")]
        cells += [f"{mean(run.results['seconds'] for run in row.runs):.1f}", _seeds(row)]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    others = [row for row in rows if row is not against]
    if others:
        lines += ["", f"| points, {of} | minus {against.name} | 95 % interval | seeds |", "|---|---|---|---|"]
        lines += [f"| {row.name} | {_difference(row, against, of)} |" for row in others]
    return "\n".join(lines) + "\n"


def accuracy(run: Run, of: str) -> list[float]:
    """Of every client, in their order. CompareError where the run did not measure it."""
    found = [client[of] for client in run.results["clients"]]
    if None in found:
        raise CompareError(f"{run.folder}: {of!r} was not measured; --row names another")
    return found


def _difference(row: Row, against: Row, of: str) -> str:
    theirs = {run.seed: run for run in against.runs}
    shared = [run for run in row.runs if run.seed in theirs]
    if not shared:
        return "no seed in common | – | 0"
    found = paired([accuracy(run, of) for run in shared], [accuracy(theirs[run.seed], of) for run in shared])
    between = "–" if found["seeds"] is None else "[{:+.1f}, {:+.1f}]".format(*(100 * end for end in found["seeds"]))
    return f"{100 * found['mean']:+.1f} | {between} | {len(shared)}"


def _percent(values: Sequence[float | None]) -> str:
    numbers = [100 * value for value in values if value is not None]
    if len(numbers) < len(values):
        return "–"
    return f"{mean(numbers):.1f}" + (f" ± {stdev(numbers):.1f}" if len(numbers) > 1 else "")


def _megabytes(row: Row, name: str) -> str:
    return f"{mean(run.results[name] for run in row.runs) / 1e6:.3g}"


def _seeds(row: Row) -> str:
    return " ".join(map(str, row.seeds))
