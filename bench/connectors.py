"""``python bench/connectors.py``: what it costs to serve every client its own connector, measured.

Connectors in batches that mix 8 clients against batches of one client; the share of vision features and connectors in
the time of an answer; and the throughput that mixing 8 clients costs the gateway, beside what mixing the same LoRAs
costs the bare engine. Results, with the machine they were measured on, go to connectors.json in the folder --out, with
--record in bench/results.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if sys.path and Path(sys.path[0]).resolve() == ROOT / "bench":
    sys.path[0] = str(ROOT)  # run as a script: the packages are beside bench/, not in it
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # the engine needs the core that waiting threads would spin on

from bench.connector_study import batches, load  # noqa: E402
from bench.prompt_study.machine import machine  # noqa: E402
from bench.prompt_study.progress import progress  # noqa: E402
from bench.results_folder import add_out, results_folder  # noqa: E402

BASE = ROOT / "bases" / "tiny" / "llava"


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, writes, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_out(parser)
    parser.add_argument("--repetitions", type=int, default=10, help="blocks of four windows a side (default: 10)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a window (default: 5)")
    parser.add_argument("--answer-tokens", type=int, default=16, help="length of every answer (default: 16)")
    options = parser.parse_args(argv)
    folder = results_folder(options)
    with progress("connectors", 1 + load.parts(options.repetitions)) as done:
        alone = batches.measure(BASE, 3 * options.repetitions)
        done("batches")
        served = load.measure(BASE, options.repetitions, options.seconds, options.answer_tokens, done)
        measured = {"batches": alone, "answers": asyncio.run(served)}
    content = {"machine": {**machine(), "vllm": _engine_version()}, **measured}
    (folder / "connectors.json").write_text(json.dumps(content, indent=1) + "\n")
    print(markdown(measured))


def markdown(measured: dict[str, Any]) -> str:
    """The figures that the acceptance names, with its bounds."""
    answers, batched = measured["answers"], measured["batches"]
    share = sum(answers["share"].values())
    worst = max(batched["mixing_cost"].values())
    lost = answers["points_lost_by_mixing"]
    lines = [
        "| figure | measured | wanted |",
        "|---|---|---|",
        f"| features and connector in the time of an answer, 8 clients | {100 * share:.1f} % | < 15 % |",
        f"| connector throughput, 8 clients against one, worst batch size | {-100 * worst:+.1f} % | > −10 % |",
        *(f"| {what} that mixing 8 clients costs: {who} | {_points(lost[by][who])} | {wanted} |"
          for by, what in FIGURES.items() for who, wanted in SHARES.items()),
    ]  # fmt: skip
    return "\n".join(lines)


FIGURES = {"throughput": "answers a second", "processor": "processor time of an answer"}
SHARES = {"gateway": "", "engine": "", "gateway's own": "≤ 5"}


def _points(figure: dict[str, Any]) -> str:
    """A mean in points, and its 95 % interval over the blocks."""
    within = figure["interval"]
    return f"{figure['mean']:+.1f}" + (f" [{within[0]:+.1f}, {within[1]:+.1f}]" if within else "") + " points"


def _engine_version() -> str:
    import vllm  # under one of two distributions

    return str(vllm.__version__)


if __name__ == "__main__":
    main()
