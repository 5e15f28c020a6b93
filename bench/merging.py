"""``python bench/merging.py MODE``: one-shot merges of LoRAs on the embedded CLIP, every style left out once.

    tune     the clients' learning rate, factors of the baselines, the coefficients' rate; images of seed 10
    table    all merges over seeds 0 to 4 and eight left-out styles, with the poisoned client; pictures
    speed    SAP's merge of four clients on a CLIP of ViT-B/16's size
    experts  two LoRAs of the 4-bit LLaVA, tuned on different tasks and fused: ATAF beside the linear mean and TIES

Results go to bench/results/merging_<mode>.json, tables and pictures beside them. Trained LoRAs and finished cells are
kept in bench/results/merging_runs, and not repeated.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
if sys.path and Path(sys.path[0]).resolve() == ROOT / "bench":
    sys.path[0] = str(ROOT)  # run as a script: the packages are beside bench/, not in it
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: a process for each core, which would share them

from bench.merging_study import cells, experts, figures, poison, speed, summary, tuning  # noqa: E402
from bench.merging_study.clients import STYLES, Training, adapters  # noqa: E402
from bench.prompt_study.machine import default_threads, machine  # noqa: E402
from bench.prompt_study.progress import progress  # noqa: E402

RESULTS: Final = ROOT / "bench" / "results"
RUNS: Final = "merging_runs"
POISONED: Final = 3  # seeds with a poisoned client
DEEP: Final = 2  # seeds whose cells have other ratios, variants, anchors and lengths of training too


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the mode that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("tune", "table", "speed", "experts"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="(default: 0 1 2 3 4)")
    parser.add_argument("--styles", nargs="+", choices=STYLES, default=list(STYLES), help="to leave out (default: all)")
    parser.add_argument("--processes", type=int, default=2, help="at a time, one thread each (default: 2)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (default: bench/results)")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    {"tune": tune, "table": table, "speed": time_sap, "experts": fuse}[options.mode](options)


def tune(options: argparse.Namespace) -> None:
    """What each left-out style is given was chosen on the others."""
    kept = options.out / RUNS
    trainings = [Training(tuning.SEED, lr) for lr in tuning.RATES]
    _all({training.name: (adapters, training, kept) for training in trainings}, options.processes, "clients")
    lr, rates = tuning.client_rate(kept)
    jobs = {style: (tuning.candidates, style, lr, kept) for style in options.styles}
    scores = _all(jobs, options.processes, "tune")
    chosen = {style: tuning.as_dict(tuning.chosen(scores, style)) for style in options.styles}
    _write(options, "tune", {"seed": tuning.SEED, "lr": lr, "rates": rates, "scores": scores, "chosen": chosen})
    print(json.dumps({"lr": lr, "chosen": chosen}, indent=1))


def table(options: argparse.Namespace) -> None:
    """All cells, then the poisoned client of every seed."""
    kept = options.out / RUNS
    tuned = json.loads((options.out / "merging_tune.json").read_text())
    lr, chosen = tuned["lr"], {style: tuning.Tuned(**values) for style, values in tuned["chosen"].items()}
    deep = options.seeds[:DEEP]
    trainings = [Training(seed, lr) for seed in options.seeds]
    trainings += [Training(seed, lr, epochs) for seed in deep for epochs in cells.EPOCHS]
    _all({training.name: (adapters, training, kept) for training in trainings}, options.processes, "clients")
    jobs = {
        (seed, style): (cells.play, seed, style, lr, chosen[style], kept, seed in deep)
        for seed in options.seeds
        for style in options.styles
    }
    found = _all(jobs, options.processes, "cells")
    poisoned = _all(
        {seed: (poison.play, seed, lr, chosen, kept) for seed in options.seeds}, options.processes, "poison"
    )
    by_seed = {seed: {style: found[seed, style] for style in options.styles} for seed in options.seeds}
    figured = summary.summarise(by_seed)
    measured = {"seeds": options.seeds, "lr": lr, **figured, "poisoned": poisoned}
    _write(options, "table", measured)
    (options.out / "merging_table.md").write_text(summary.markdown(figured))
    figures.draw(figured, options.out)
    print(summary.markdown(figured))


def time_sap(options: argparse.Namespace) -> None:
    """In a process of its own, on all cores."""
    found = _all({"ViT-B/16": (speed.measure, default_threads())}, 1, "speed")["ViT-B/16"]
    _write(options, "speed", found)
    print(json.dumps(found, indent=1))


def fuse(options: argparse.Namespace) -> None:
    """ATAF's accuracy row."""
    kept = options.out / RUNS
    found = _all({seed: (experts.play, seed, kept) for seed in options.seeds}, options.processes, "experts")
    figured = experts.summarise(found)
    _write(options, "experts", {"seeds": options.seeds, "tasks": list(experts.TASKS), **figured})
    (options.out / "merging_experts.md").write_text(experts.markdown(figured))
    print(experts.markdown(figured))


def _all(jobs: dict[Any, tuple[Callable[..., Any], ...]], processes: int, title: str) -> dict[Any, Any]:
    """What every job returned, in the jobs' order."""
    with progress(title, len(jobs)) as done, ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures = {pool.submit(*job): key for key, job in jobs.items()}
        for future in as_completed(futures):
            future.result()
            done(str(futures[future]))
        return {key: future.result() for future, key in futures.items()}


def _write(options: argparse.Namespace, name: str, measured: dict[str, Any]) -> None:
    content = {"machine": machine(), **measured}
    (options.out / f"merging_{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
