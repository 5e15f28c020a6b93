"""``python bench/federated.py train/configs/X.yaml``: one configuration over several seeds, as a table.

Writes <config>.json to the folder --out, with --record to bench/results, where the committed ones are: every seed's
test accuracy (mean and worst over clients) by row, their mean and standard deviation over the seeds, and the machine. A
seed draws the data, the split and every batch; nothing is chosen on test data.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if sys.path and Path(sys.path[0]).resolve() == ROOT / "bench":
    sys.path[0] = str(ROOT)  # run as a script: the packages are beside bench/, not in it

from bench.results_folder import add_out, results_folder  # noqa: E402

ROWS = ("zero_shot", "local", "global", "personal")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the seeds one after the other; further arguments go to train/fed.py."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("config", type=Path, help="configuration of train/fed.py")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default: 0 1 2")
    parser.add_argument("--name", help="name of the result file (default: that of the configuration)")
    parser.add_argument("--processes", type=int, choices=(1, 2), default=1, help="on a CPU; the figures are the same")
    add_out(parser)
    options, further = parser.parse_known_args(argv)
    folder = results_folder(options)
    runs = [run(options.config, seed, further, options.processes) for seed in options.seeds]
    summary = summarise(options.config, options.seeds, further, runs)
    name = options.name or options.config.stem
    (folder / f"{name}.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(markdown(name, summary))


def run(config: Path, seed: int, further: Sequence[str], processes: int) -> dict[str, Any]:
    """``results.json`` of one seed."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--config", str(config), "--seed", str(seed), "--out", f"{folder}/run", *further]
        unpublished = ["--publish.enabled", "false"]
        several = ["--config_file", str(ROOT / "train" / "configs" / "accelerate" / "cpu2.yaml")]
        launch = [
            str(Path(sys.executable).parent / "accelerate"),
            "launch",
            *(several if processes == 2 else ["--num_processes", "1"]),
        ]
        subprocess.run([*launch, str(ROOT / "train" / "fed.py"), *arguments, *unpublished], check=True)
        results: dict[str, Any] = json.loads((Path(folder) / "run" / "results.json").read_text())
        return results


def summarise(config: Path, seeds: list[int], further: list[str], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything the table is made of, and where it was measured."""
    over = {
        f"{row}_{of}": {"mean": mean(values), "std": stdev(values) if len(values) > 1 else 0.0, "seeds": values}
        for row in ROWS
        for of in ("mean", "worst")
        if None not in (values := [run[of][row] for run in runs])
    }
    return {
        "config": str(config),
        "arguments": further,
        "seeds": seeds,
        "accuracy": over,
        "bytes_up": runs[0]["bytes_up"],
        "bytes_down": runs[0]["bytes_down"],
        "training_seconds": [run["seconds"] for run in runs],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }


def markdown(name: str, summary: dict[str, Any]) -> str:
    """A table row a kind of model: test accuracy in per cent over the seeds."""
    lines = [f"| {name} | mean over clients | worst client |", "|---|---|---|"]
    for row in ROWS:
        cells = [summary["accuracy"].get(f"{row}_{of}") for of in ("mean", "worst")]
        shown = ["–" if cell is None else f"{100 * cell['mean']:.1f} ± {100 * cell['std']:.1f}" for cell in cells]
        lines.append(f"| {row.replace('_', '-')} | {shown[0]} | {shown[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
