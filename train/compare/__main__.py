"""``python -m train.compare RUN… [--out table.md]``: finished runs in one table and one plot.

Runs that differ in their seed alone are one row. All must have the same data; all else may differ.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from train.compare.plot import draw
from train.compare.runs import CompareError, Row, read_run, rows_of
from train.compare.table import accuracy, markdown
from train.run.results import ROWS


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; 2 after a sentence where there is none to print."""
    options = _parser().parse_args(argv)
    try:
        rows = rows_of([read_run(folder) for folder in options.runs])
        for row in rows:
            for run in row.runs:
                accuracy(run, options.row)
        text = markdown(rows, options.row, _against(rows, options.against))
        if options.out is not None:
            draw(rows, options.row, options.out.with_suffix(".png"))
            options.out.write_text(text, encoding="utf-8")
    except CompareError as error:
        print(f"python -m train.compare: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"python -m train.compare: --out: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(text, end="")
    return 0


def _against(rows: Sequence[Row], folder: Path | None) -> Row:
    """The row that this run is in; the first without one."""
    if folder is None:
        return rows[0]
    for row in rows:
        if any(run.folder.resolve() == folder.resolve() for run in row.runs):
            return row
    raise CompareError(f"--against: {folder} is none of the runs that are compared")


def _parser() -> argparse.ArgumentParser:
    description, rest = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(prog="python -m train.compare", description=description, epilog=rest)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.md", help="writes the table there, the plot beside it as .png"
    )
    parser.add_argument("--row", choices=ROWS, default="personal", help="what is compared (default: personal)")
    parser.add_argument(
        "--against", type=Path, metavar="RUN", help="differences are from this one's row (default: the first)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
