"""``python bench/merging.py MODE``: one-shot merges of LoRAs on the embedded CLIP, every style left out once.

    tune     the clients' learning rate, factors of the baselines, the coefficients' rate; images of seed 10
    table    all merges over seeds 0 to 4 and eight left-out styles
    variants other ratios, options, anchors and lengths of training, over two of the seeds
    poison   one client with all labels wrong, over three of the seeds
    ruined   clients trained at a rate that makes them forget the base, over three of the seeds
    speed    SAP's merge of four clients on a CLIP of ViT-B/16's size
    experts  two LoRAs of the 4-bit LLaVA, tuned on different tasks and fused: ATAF beside the linear mean and TIES

Results go to the folder --out, with --record to bench/results: merging_<mode>.json, tables and pictures beside them.
Trained LoRAs and finished cells are kept in its merging_runs, and not repeated. What was not tuned into the same folder
is taken from the committed ones.
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
from bench.results_folder import add_out, kept, results_folder  # noqa: E402

RUNS: Final = "merging_runs"
FEW, SOME = 2, 3  # seeds of variants, and of poison and ruined


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the mode that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="(default: 0 1 2 3 4)")
    parser.add_argument("--styles", nargs="+", choices=STYLES, default=list(STYLES), help="to leave out (default: all)")
    parser.add_argument("--processes", type=int, default=2, help="at a time, one thread each (default: 2)")
    add_out(parser)
    options = parser.parse_args(argv)
    results_folder(options)
    MODES[options.mode](options)


def tune(options: argparse.Namespace) -> None:
    """What each left-out style is given was chosen on the others."""
    kept = options.out / RUNS
    _train(options, [Training(tuning.SEED, lr) for lr in tuning.RATES])
    lr, rates = tuning.client_rate(kept)
    jobs = {style: (tuning.candidates, style, lr, kept) for style in options.styles}
    scores = _all(jobs, options.processes, "tune")
    chosen = {style: tuning.as_dict(tuning.chosen(scores, style)) for style in options.styles}
    _write(options, "tune", {"seed": tuning.SEED, "lr": lr, "rates": rates, "scores": scores, "chosen": chosen})
    print(json.dumps({"lr": lr, "chosen": chosen}, indent=1))


def table(options: argparse.Namespace) -> None:
    """All merges."""
    lr, _, _ = _tuned(options)
    _train(options, [Training(seed, lr) for seed in options.seeds])
    figured = summary.summarise(_cells(options, options.seeds, "main"))
    _write(options, "table", {"seeds": options.seeds, "lr": lr, **figured})
    (options.out / "merging_table.md").write_text(summary.markdown(figured))
    figures.draw_styles(figured["rows"], options.out / "merging_styles.png")
    print(summary.markdown(figured))


def variants(options: argparse.Namespace) -> None:
    """What was tried beside, with the table's merges on the same seeds."""
    lr, _, _ = _tuned(options)
    seeds = options.seeds[:FEW]
    _train(options, [Training(seed, lr, epochs) for seed in seeds for epochs in (10, *cells.EPOCHS)])
    main_cells, more = _cells(options, seeds, "main"), _cells(options, seeds, "variants")
    both = {seed: {style: main_cells[seed][style] | more[seed][style] for style in options.styles} for seed in seeds}
    figured = summary.summarise(both)
    _write(options, "variants", {"seeds": seeds, "lr": lr, **figured})
    (options.out / "merging_variants.md").write_text(summary.markdown(figured))
    figures.draw_ratios(figured["rows"], options.out / "merging_ratios.png")
    print(summary.markdown(figured))


def ruined(options: argparse.Namespace) -> None:
    """Clients that forgot what the base knows: where zero-shot is the better start."""
    seeds = options.seeds[:SOME]
    _train(options, [Training(seed, cells.RUINED) for seed in seeds])
    figured = summary.summarise(_cells(options, seeds, "ruined", cells.RUINED))
    _write(options, "ruined", {"seeds": seeds, "lr": cells.RUINED, **figured})
    (options.out / "merging_ruined.md").write_text(summary.markdown(figured))
    print(summary.markdown(figured))


def poisoned(options: argparse.Namespace) -> None:
    """One client whose labels are all wrong."""
    lr, chosen, kept = _tuned(options)
    seeds = options.seeds[:SOME]
    found = _all({seed: (poison.play, seed, lr, chosen, kept) for seed in seeds}, options.processes, "poison")
    _write(options, "poison", {"seeds": seeds, **poison.summarise(found)})
    print(poison.markdown(found))


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


MODES: Final[dict[str, Callable[[argparse.Namespace], None]]] = {
    "tune": tune,
    "table": table,
    "variants": variants,
    "poison": poisoned,
    "ruined": ruined,
    "speed": time_sap,
    "experts": fuse,
}


def _tuned(options: argparse.Namespace) -> tuple[float, dict[str, tuning.Tuned], Path]:
    """What ``tune`` chose: the clients' rate, and for every left-out style; and where finished parts are kept."""
    found = json.loads(kept(options.out, "merging_tune.json").read_text())
    return found["lr"], {style: tuning.Tuned(**values) for style, values in found["chosen"].items()}, options.out / RUNS


def _train(options: argparse.Namespace, trainings: Sequence[Training]) -> None:
    jobs = {training.name: (adapters, training, options.out / RUNS) for training in trainings}
    _all(jobs, options.processes, "clients")


def _cells(
    options: argparse.Namespace, seeds: Sequence[int], part: cells.Part, rate: float | None = None
) -> dict[int, dict[str, dict[str, cells.Row]]]:
    """Of clients that trained at this rate; at the tuned one by default."""
    lr, chosen, kept = _tuned(options)
    lr = rate or lr
    jobs = {
        (seed, style): (cells.play, seed, style, lr, chosen[style], kept, part)
        for seed in seeds
        for style in options.styles
    }
    found = _all(jobs, options.processes, part)
    return {seed: {style: found[seed, style] for style in options.styles} for seed in seeds}


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
