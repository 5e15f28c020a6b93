"""Where a benchmark's results go: to a folder of its own, and over the committed ones only where that is said."""

import argparse
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
COMMITTED: Final = ROOT / "bench" / "results"
OWN: Final = ROOT / "runs" / "bench"


def add_out(parser: argparse.ArgumentParser) -> None:
    """Adds the options ``--out`` and ``--record``."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", type=Path, default=OWN, help="folder of the results (default: runs/bench)")
    where.add_argument(
        "--record",
        dest="out",
        action="store_const",
        const=COMMITTED,
        help="write to bench/results, over the committed ones",
    )


def kept(folder: Path, name: str) -> Path:
    """The file of an earlier result: this folder's, or where it has none the committed one."""
    own = folder / name
    return own if own.exists() else COMMITTED / name


def results_folder(options: argparse.Namespace) -> Path:
    """The folder, made where it is missing."""
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    return folder
