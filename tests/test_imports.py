"""Who may import whom: train → adapters_store ← serve; ui speaks HTTP and imports none of them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "train": {"train", "adapters_store"},
    "serve": {"serve", "adapters_store"},
    "ui": {"ui"},
    "adapters_store": {"adapters_store"},
}


def imported(path: Path) -> set[str]:
    """Top-level names of the project's packages that a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names & ALLOWED.keys()


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_only_what_they_may(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {str(path.relative_to(ROOT)): imported(path) - ALLOWED[package] for path in files}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_the_loop_names_no_method() -> None:
    """A new method must not need a change in rounds.py: it may import the contract, never a method or the table."""
    imports = [
        node.module or ""
        for node in ast.walk(ast.parse((ROOT / "train" / "rounds.py").read_text()))
        if isinstance(node, ast.ImportFrom)
    ]
    assert [m for m in imports if m.startswith("train.methods")] == ["train.methods.base"]
    assert "train.methods" not in imports


def test_the_check_sees_a_forbidden_import(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from serve.app import app\n    import train.data\n")
    assert imported(wrong) == {"serve", "train"}
