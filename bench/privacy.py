"""``python bench/privacy.py``: test accuracy against ε on the embedded data, with differentially private uploads.

The federations are played at the committed learning rates, or with --tune at new ones, chosen on validation examples of
seeds 10 and 11 for much noise (ε = 1), little (ε = 4) and none; and a private step is timed beside a plain one. Written
to the folder --out: privacy.json, privacy.png, tables as privacy.md, new rates as privacy_rates.json; with --record
over the committed ones, in bench/results, and in docs/ the picture and the tables.
"""

import argparse
import itertools
import json
import math
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
if sys.path and Path(sys.path[0]).resolve() == ROOT / "bench":
    sys.path[0] = str(ROOT)  # run as a script: the packages are beside bench/, not in it
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads starve the other processes of this machine
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from bench.privacy_study import show, steps  # noqa: E402
from bench.privacy_study.federations import CLIENT, CLIP_NORM, DATA, PRIVATE, Job, play_all  # noqa: E402
from bench.prompt_study.machine import machine  # noqa: E402
from bench.results_folder import COMMITTED, add_out, kept, results_folder  # noqa: E402

EPSILONS: Final = (1.0, 2.0, 4.0, 8.0, math.inf)
RATES: Final = (0.01, 0.03, 0.1, 0.3)
NOISE: Final = {"much": 1.0, "little": 4.0, "none": math.inf}
"""ε at which a rate is chosen, for ε up to 2, above 2, and plain training."""
VALIDATION_SEEDS: Final = (10, 11)
RATES_FILE: Final = "privacy_rates.json"
Rates = dict[str, float]


def main(argv: Sequence[str] | None = None) -> None:
    """Chooses rates where there are none, plays, times, writes, prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2), help="default: 0 1 2")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS, help="default: 1 2 4 8 inf")
    parser.add_argument("--methods", nargs="+", choices=PRIVATE, default=PRIVATE)
    parser.add_argument("--settings", nargs="+", choices=tuple(DATA), default=tuple(DATA))
    parser.add_argument("--processes", type=int, default=1, help="one thread each (default: 1)")
    rated = parser.add_mutually_exclusive_group()
    rated.add_argument("--lr", type=float, help="take this rate everywhere")
    rated.add_argument("--tune", action="store_true", help="choose the rates again, all of them")
    add_out(parser)
    options = parser.parse_args(argv)
    folder = results_folder(options)
    if options.tune:
        choose_rates(folder / RATES_FILE, options.processes)
    pairs = list(itertools.product(options.settings, options.methods))
    rates: Rates = (
        {_key(setting, method, noise): options.lr for setting, method in pairs for noise in NOISE}
        if options.lr
        else json.loads(kept(folder, RATES_FILE).read_text())["chosen"]
    )
    jobs = [
        Job(setting, method, epsilon, seed, rates[_key(setting, method, noise_of(epsilon))])
        for setting, method in pairs
        for epsilon in options.epsilons
        for seed in options.seeds
    ]
    rows = show.summarise(play_all(jobs, options.processes, "privacy"))
    write(folder, rows, steps.measure(repetitions=5))


def noise_of(epsilon: float) -> str:
    """Which of the chosen rates this ε takes."""
    return "none" if math.isinf(epsilon) else "much" if epsilon <= 2 else "little"


def choose_rates(path: Path, processes: int) -> None:
    """Writes those with the best mean validation accuracy."""
    jobs = [
        Job(setting, method, epsilon, seed, lr, "val")
        for (setting, method, epsilon) in itertools.product(DATA, PRIVATE, NOISE.values())
        for lr in RATES
        for seed in VALIDATION_SEEDS
    ]
    scores: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for outcome in play_all(jobs, processes, "rates"):
        job = outcome.job
        scores[_key(job.setting, job.method, noise_of(job.epsilon))][job.lr].append(outcome.mean)
    means = {key: {lr: mean(values) for lr, values in by_rate.items()} for key, by_rate in scores.items()}
    chosen = {key: max((accuracy, lr) for lr, accuracy in by_rate.items())[1] for key, by_rate in means.items()}
    found = {"machine": machine(), "validation_seeds": VALIDATION_SEEDS, "validation_accuracy": means, "chosen": chosen}
    path.write_text(json.dumps(found, indent=2) + "\n")


def _key(setting: str, method: str, noise: str) -> str:
    return f"{setting}/{method}/{noise}"


MEASURED: Final = "## Measured\n"
PAGE: Final = """![Accuracy against ε](privacy.png)

Test accuracy in per cent of the clients' own versions, mean of the clients / worst client, ± standard deviation over
the seeds (`python bench/privacy.py`; figures and machine in `bench/results/privacy.json`). Plain training takes as many
steps, its gradient cut to the same norm as a whole.

{accuracy}

A step of a client on the embedded base, on one thread:

{steps}
"""


def write(out: Path, rows: list[dict[str, object]], timed: list[dict[str, object]]) -> None:
    """Results, curve, and what follows the heading "Measured" of docs/privacy.md."""
    settings = {"client": CLIENT, "clip_norm": CLIP_NORM, "data": DATA, "delta": 1e-5}
    found = {"machine": machine(), "settings": settings, "rows": rows, "milliseconds_a_step": timed}
    (out / "privacy.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    docs = ROOT / "docs" if out == COMMITTED else out
    show.draw(rows, docs / "privacy.png")
    page = docs / "privacy.md"
    before = page.read_text().split(MEASURED)[0] if page.exists() else ""
    tables = PAGE.format(accuracy=show.markdown(rows), steps=steps.markdown(timed))
    page.write_text(f"{before}{MEASURED}\n{tables}")
    print(tables)


if __name__ == "__main__":
    main()
