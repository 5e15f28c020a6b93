"""Who may import whom: train → adapters_store ← serve; ui speaks HTTP and imports none of them. Inside serve/ no import
runs upward between rooms."""

import ast
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "train": {"train", "adapters_store"},
    "serve": {"serve", "adapters_store"},
    "ui": {"ui"},
    "adapters_store": {"adapters_store"},
}


ROOMS = {
    "adapters_store": (
        {"errors", "limits", "paths", "torchvision_ops"},
        {"disk"},
        {"pictures"},
        {"bases"},
        {"personal"},
        {"versions"},
        {"pointers", "templates"},
        {"store"},
        {"mirror", "listing"},
        {"__main__"},
    ),
    "train": (
        {"errors", "section", "sections", "tensors", "lowrank"},
        {"data", "aggregation"},
        {"merging"},
        {"models"},
        {"methods"},
        {"privacy"},
        {"federation"},
        {"merge", "pretraining"},
        {"publish"},
        {"run"},
        {"fed", "pretrain", "compare", "data command"},
    ),
    "serve": (
        {"errors", "settings", "schemas", "metrics"},
        {"http"},
        {"pictures"},
        {"versions"},
        {"engine"},
        {"chat", "classify"},
        {"gateway"},
        {"app"},
        {"__main__"},
    ),
}
"""The rooms of a package, folders and files beside them, from the ground up. Those of one floor do not import each
other, but for the ground floor's."""


TABLES = ("train/methods",)
"""Folders whose files are the entries of one table."""


def modules(path: Path) -> set[str]:
    """Dotted names of the project's modules that a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return {name for name in names if name.split(".")[0] in ALLOWED}


def imported(path: Path) -> set[str]:
    """Top-level names of the project's packages that a file imports."""
    return {name.split(".")[0] for name in modules(path)}


def room_of(path: Path) -> str:
    """The folder in its package that a file is in, or the file itself; a folder's command may be above it."""
    room = path.relative_to(ROOT).with_suffix("").parts[1]
    return "data command" if (room, path.name) == ("data", "__main__.py") else room


def upward(package: str, path: Path) -> set[str]:
    """What a file imports of its package from the same floor in another room, or from above."""
    floor = {room: level for level, rooms in enumerate(ROOMS[package]) for room in rooms}
    own = room_of(path)
    others = {name.split(".")[1] for name in modules(path) if name.startswith(f"{package}.")} - {own}
    return {room for room in others if floor[room] >= floor[own] > 0 or floor[room] > floor[own]}


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_only_what_they_may(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {str(path.relative_to(ROOT)): imported(path) - ALLOWED[package] for path in files}
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.parametrize("package", ROOMS)
def test_no_import_runs_upward_between_rooms(package: str) -> None:
    files = [path for path in sorted((ROOT / package).rglob("*.py")) if path.parent.name != "site"]
    files.remove(ROOT / package / "__init__.py")
    assert {room_of(path) for path in files} == set().union(*ROOMS[package])
    wrong = {str(path.relative_to(ROOT)): upward(package, path) for path in files}
    assert {path: rooms for path, rooms in wrong.items() if rooms} == {}


def test_no_room_is_crowded_and_no_file_long() -> None:
    files = [path for package in ALLOWED for path in (ROOT / package).rglob("*.py")]
    rooms = Counter(str(path.parent.relative_to(ROOT)) for path in files)
    assert {room: count for room, count in rooms.items() if count > 16 and room not in TABLES} == {}
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {path: count for path, count in lines.items() if count > 300} == {}
    assert median(lines.values()) <= 100


def test_the_loop_names_no_method() -> None:
    """A new method must not need a change in rounds.py: it may import the contract, never a method or the table."""
    imports = [
        node.module or ""
        for node in ast.walk(ast.parse((ROOT / "train" / "federation" / "rounds.py").read_text()))
        if isinstance(node, ast.ImportFrom)
    ]
    assert [m for m in imports if m.startswith("train.methods")] == ["train.methods.contract"]
    assert "train.methods" not in imports


def test_the_check_sees_a_forbidden_import(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from serve.app import app\n    import train.data\n")
    assert imported(wrong) == {"serve", "train"}
