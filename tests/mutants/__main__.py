"""``python -m tests.mutants [WORD …]``: tries every mutant of the table (or those whose file has a WORD in its path).

It works in a temporary copy of the tree, one mutant at a time, with the mutant's nearest tests alone, which must pass
without any. Exit code 1 where a mutant survives, or could not be tried.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.table import MUTANTS, Mutant

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = ("adapters_store", "bases", "bench", "serve", "tests", "train", "ui", "pyproject.toml")
LEFT: Final = shutil.ignore_patterns("published", "__pycache__", "results")
FAILED: Final = 1
"""pytest's exit code where tests ran and failed; a module that cannot be imported gives another."""


def main(words: Sequence[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.file for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy(tree)
        nearest = sorted({mutant.tests for mutant in chosen})
        if (code := tests(tree, nearest)) != 0:
            print(f"the tests fail without any mutant (pytest's exit code {code}): {' '.join(nearest)}")
            return 1
        found = [report(mutant, fate(tree, mutant)) for mutant in chosen]
    print(f"{found.count('killed')} of {len(found)} killed")
    return int(set(found) != {"killed"})


def copy(tree: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=LEFT)
        else:
            shutil.copy(source, tree / name)


def fate(tree: Path, mutant: Mutant) -> str:
    """What became of the mutant: killed, or what is wrong. The tree is as before afterwards."""
    path = tree / mutant.file
    before = path.read_text(encoding="utf-8")
    if (count := before.count(mutant.old)) != 1:
        return f"cannot be tried: its text stands {count} times in the file"
    path.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        code = tests(tree, [mutant.tests])
    finally:
        path.write_text(before, encoding="utf-8")
    return {0: "SURVIVED", FAILED: "killed"}.get(code, f"cannot be tried: pytest ended with {code}")


def tests(tree: Path, paths: Sequence[str]) -> int:
    """pytest's exit code over these files of the tree; no bytecode is kept, which could outlive a mutant."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not accept", *paths]
    settings = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=tree, env=settings, capture_output=True).returncode


def report(mutant: Mutant, fate: str) -> str:
    print(f"{fate}: {mutant.file}: {mutant.old.strip()!r} → {mutant.new.strip()!r}", flush=True)
    return fate


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
