"""What is read off a version's folder: when it was published, and its files."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from adapters_store.pointer import StoreError

OWN_FILES = {"manifest.json", "report.json"}


def published(folder: Path) -> str:
    """When the version was published, as text that sorts; empty where the report cannot be read."""
    try:
        return str(json.loads((folder / "report.json").read_bytes())["published"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def after_all(folders: list[Path]) -> str:
    """Now, or just after the newest of these versions where the clock went back, as ISO 8601 with microseconds."""
    now = datetime.now(UTC)
    newest = max((published(folder) for folder in folders), default="")
    if newest >= now.isoformat(timespec="microseconds"):
        now = datetime.fromisoformat(newest) + timedelta(microseconds=1)
    return now.isoformat(timespec="microseconds")


def read_files(folder: Path) -> dict[str, bytes]:
    """Every file of a version but its manifest and report, by its path within the folder; links are refused."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise StoreError(f"file {name} is a link")
        if path.is_file() and name not in OWN_FILES:
            files[name] = path.read_bytes()
    return files
