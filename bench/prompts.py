"""``python bench/prompts.py MODE``: what the prompt family costs and what it reaches, measured.

    speed   a round of pFedMoAP on the product's path, the plain one, and the reference code's schedule
    scale   a round as clients grow from 10 to 1000
    tune    learning rates of every method, on validation examples of seeds 10 and 11
    table   accuracy of every method and of pFedMoAP's ablations, with the rates tuned into the same folder, or else the
            committed ones

Results, with the machine they were measured on, go to prompts_<mode>.json in the folder --out, with --record in
bench/results.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if sys.path and Path(sys.path[0]).resolve() == ROOT / "bench":
    sys.path[0] = str(ROOT)  # run as a script: the packages are beside bench/, not in it
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from bench.prompt_study import accuracy, scale, speed, table, tuning  # noqa: E402
from bench.prompt_study.encoding import measure_encoding  # noqa: E402
from bench.prompt_study.machine import default_threads, machine  # noqa: E402
from bench.prompt_study.progress import progress  # noqa: E402
from bench.prompt_study.settings import SETTINGS, prompt_length  # noqa: E402
from bench.prompt_study.sizes import EPOCHS, sized  # noqa: E402
from bench.results_folder import COMMITTED, add_out, kept, results_folder  # noqa: E402
from train.data import build  # noqa: E402

REFERENCE = {"vit-b-16": 1, "tiny": 3}
"""How often the reference's round is played: minutes on the large base."""
QUICK: dict[str, Any] = {"few_shot": 1, "val_per_client": 4, "test_per_client": 4}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the mode that the arguments name."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.quick and options.out == COMMITTED:
        parser.error("--quick: its figures mean nothing; leave out --record")
    results_folder(options)
    {"speed": run_speed, "scale": run_scale, "tune": run_tune, "table": run_table}[options.mode](options)


def run_speed(options: argparse.Namespace) -> None:
    """Both sizes (or the one asked for), one results file each."""
    for size in options.size:
        fast, slow = (1, 1) if options.quick else (options.repetitions, REFERENCE[size])
        counts = {"fast": fast, "plain": fast, "reference": slow}
        total = 1 + len(options.threads) * (sum(counts.values()) + fast)
        with sized(size, **(QUICK if options.quick else {})) as (config, resident), progress(size, total) as done:
            clients = build(config.data, config.seed)
            names, length = clients[0].class_names, prompt_length(config)
            measured = {
                "local_epochs": EPOCHS[size],
                "batch_size": config.client.batch_size,
                "examples": [len(client.train) for client in clients],
                **speed.measure_rounds(config, resident, clients, options.threads, counts, done),
                "text_encoding": measure_encoding(resident, names, length, options.threads, fast, done),
            }
        _write(options.out, f"speed_{size}", measured)
        print(speed.markdown(size, measured))


def run_scale(options: argparse.Namespace) -> None:
    """Every federation in a process of its own, so that its peak memory is its own."""
    pairs = [(4, 2), (8, 2)] if options.quick else list(dict.fromkeys((*scale.GROWTH, *scale.FIXED)))
    measured = []
    with progress("scale", len(pairs)) as done:
        for clients, per_round in pairs:
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                measured.append(alone.submit(scale.measure, clients, per_round, options.rounds).result())
            done(f"{per_round} of {clients} clients")
    _write(options.out, "scale", {"threads": 1, "federations": measured})
    print(scale.markdown(measured))


def run_tune(options: argparse.Namespace) -> None:
    """Chooses the rates."""
    jobs = tuning.jobs(options.settings, options.seeds or tuning.SEEDS, *_shrunk(options))
    chosen = tuning.choose(_played("tune", jobs, options.processes))
    _write(options.out, "tuned", {"seeds": options.seeds or tuning.SEEDS, "split": "val", **chosen})
    print(json.dumps(chosen["chosen"], indent=2))


def run_table(options: argparse.Namespace) -> None:
    """Plays the table with the rates tuned into the same folder, or else the committed ones."""
    seeds = options.seeds or range(5)
    rates = json.loads(kept(options.out, "prompts_tuned.json").read_text())["chosen"]
    jobs = table.jobs(options.settings, seeds, rates, *_shrunk(options))
    settings = table.summarise(_played("table", jobs, options.processes))
    _write(options.out, "table", {"seeds": list(seeds), "threads": 1, "rates": rates, "settings": settings})
    (options.out / "prompts_table.md").write_text(table.markdown(settings))
    print(table.markdown(settings))


def _played(title: str, jobs: Sequence[accuracy.Job], processes: int) -> list[accuracy.Result]:
    runs = sum(len(job.rows) for job in jobs)
    print(f"{title}: {runs} federations in {len(jobs)} jobs, {processes} at a time", file=sys.stderr)
    with progress(title, len(jobs)) as done:
        return accuracy.play_all(jobs, processes, lambda result: done(f"{result.setting}, seed {result.seed}"))


def _shrunk(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """What --quick changes of the data and of the federation."""
    return (QUICK, {"rounds": 2}) if options.quick else ({}, {})


def _write(folder: Path, name: str, measured: dict[str, Any]) -> None:
    content = json.dumps({"machine": machine(), **measured}, indent=1)
    (folder / f"prompts_{name}.json").write_text(content + "\n")


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    add_out(shared)
    shared.add_argument("--quick", action="store_true", help="very few examples and rounds, to try the command")
    study = argparse.ArgumentParser(add_help=False)
    study.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="default: all")
    study.add_argument("--seeds", type=int, nargs="+", help="default: 10 11 for tune, 0 to 4 for table")
    study.add_argument("--processes", type=int, default=2, help="processes of one thread (default: 2)")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    timed = modes.add_parser("speed", parents=[shared], help="fast, plain and reference path")
    timed.add_argument("--size", nargs="+", choices=EPOCHS, default=list(EPOCHS), help="default: both")
    threads = sorted({1, default_threads()})
    timed.add_argument("--threads", type=int, nargs="+", default=threads, help="default: 1 and all cores")
    timed.add_argument("--repetitions", type=int, default=5, help="of the fast and the plain path (default: 5)")
    grown = modes.add_parser("scale", parents=[shared], help="10 to 1000 clients")
    grown.add_argument("--rounds", type=int, default=5, help="rounds timed in each federation (default: 5)")
    modes.add_parser("tune", parents=[shared, study], help="learning rates")
    modes.add_parser("table", parents=[shared, study], help="accuracy")
    return parser


if __name__ == "__main__":
    main()
