"""``python bench/pilot.py MODE``: Pilot beside training alone, FedIT and its own ablations, on pilot_scenes.

    tune    learning rates of Pilot, of training alone and of FedIT, on validation questions of seed 10
    table   own test questions, unseen styles and the unseen task over seeds 0, 1, 2, at the tuned rates

Results go to the folder --out, with --record to bench/results: pilot_<mode>.json, and the table as pilot_table.md.
Finished runs are kept in its pilot_runs, and not repeated. Rates that were not tuned into the same folder are the
committed ones.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
if sys.path and Path(sys.path[0]).resolve() == ROOT / "bench":
    sys.path[0] = str(ROOT)  # run as a script: the packages are beside bench/, not in it

from bench.pilot_study.runs import VARIANTS, Job, play_all  # noqa: E402
from bench.pilot_study.summary import by_task, markdown, summarise  # noqa: E402
from bench.prompt_study.machine import machine  # noqa: E402
from bench.prompt_study.progress import progress  # noqa: E402
from bench.results_folder import add_out, kept, results_folder  # noqa: E402

RATES: Final = {"pilot": (1e-3, 2e-3, 4e-3), "fedit": (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)}
VALIDATION_SEED: Final = 10
RUNS: Final = "pilot_runs"
AGAINST: Final = ("local", "FedIT, global")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the mode that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("tune", "table"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of table (default: 0 1 2)")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, one thread each (default: 2)")
    add_out(parser)
    options = parser.parse_args(argv)
    results_folder(options)
    {"tune": tune, "table": table}[options.mode](options)


def tune(options: argparse.Namespace) -> None:
    """The rate with the best mean over clients, of equals the larger: of Pilot's and local training's personal row, of
    FedIT's global one."""
    jobs = [
        Job(method, lr, VALIDATION_SEED, "val", local=method == "pilot")
        for method, rates in RATES.items()
        for lr in rates
    ]
    with progress("tune", len(jobs)) as done:
        found = dict(zip(jobs, play_all(jobs, options.processes, options.out / RUNS, done), strict=True))
    rows = (("pilot", "pilot", "personal"), ("local", "pilot", "local"), ("fedit", "fedit", "global"))
    scores = {
        name: {f"{job.lr:g}": results["mean"][row] for job, results in found.items() if job.method == method}
        for name, method, row in rows
    }
    chosen = {name: max((score, float(lr)) for lr, score in by_rate.items())[1] for name, by_rate in scores.items()}
    _write(options.out, "tune", {"seed": VALIDATION_SEED, "split": "val", "scores": scores, "chosen": chosen})
    print(json.dumps(chosen, indent=2))


def table(options: argparse.Namespace) -> None:
    """Every method on every seed. Ablations take Pilot's rate."""
    rates = json.loads(kept(options.out, "pilot_tune.json").read_text())["chosen"]
    shared = rates["local"] == rates["pilot"]  # then Pilot's own runs have the row
    names = [*VARIANTS] if shared else [*VARIANTS, "local"]
    jobs = [_job(name, rates, seed, shared) for name in names for seed in options.seeds]
    with progress("table", len(jobs)) as done:
        results = play_all(jobs, options.processes, options.out / RUNS, done)
    count = len(options.seeds)
    runs = {name: results[i * count : (i + 1) * count] for i, name in enumerate(names)}
    rows: dict[str, tuple[str, Sequence[dict[str, Any]]]] = {
        "zero-shot": ("zero_shot", runs["pilot"]),
        "local": ("local", runs["pilot" if shared else "local"]),
        "FedIT, global": ("global", runs["fedit"]),
        "FedIT, personal": ("personal", runs["fedit"]),
        "Pilot, global": ("global", runs["pilot"]),
        "Pilot": ("personal", runs["pilot"]),
        **{name: ("personal", runs[name]) for name in VARIANTS if name.startswith("with")},
    }
    summary, tasks = summarise(rows, AGAINST), by_task(rows)
    costs = {name: {way: mean(run[way] for run in runs[name]) for way in COSTS} for name in VARIANTS}
    _write(
        options.out, "table", {"seeds": options.seeds, "rates": rates, "rows": summary, "tasks": tasks, "costs": costs}
    )
    (options.out / "pilot_table.md").write_text(markdown(summary, tasks, AGAINST))
    print(markdown(summary, tasks, AGAINST))


COSTS: Final = ("bytes_up", "bytes_down", "seconds")


def _job(name: str, rates: dict[str, float], seed: int, shared: bool) -> Job:
    if name == "local":
        return Job("pilot", rates["local"], seed, "test", local=True)
    rate = rates["fedit" if name == "fedit" else "pilot"]
    return Job(name, rate, seed, "test", local=shared and name == "pilot")


def _write(folder: Path, name: str, measured: dict[str, Any]) -> None:
    (folder / f"pilot_{name}.json").write_text(json.dumps({"machine": machine(), **measured}, indent=1) + "\n")


if __name__ == "__main__":
    main()
