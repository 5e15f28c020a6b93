"""What the store's commands print: JSON for programs, a table on a terminal, plain lines anywhere else."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from adapters_store.store import Artefact, Store, StoreError
from adapters_store.versions.manifest import Family


def client_rows(store: Store, client: str) -> list[dict[str, Any]]:
    """The lines of ``list`` for a client: for each family what answers, and what there is besides."""
    try:
        families: list[Family | None] = [*store.families(client)]
        return [live_row(store, client, family) for family in families or [None]]
    except StoreError as error:
        return [live_row(store, client, None) | {"problem": str(error)}]


def live_row(store: Store, client: str, family: Family | None) -> dict[str, Any]:
    """What answers for a client in that family; None: nothing does in any."""
    row: dict[str, Any] = {"client": client, "live": None, "versions": None, "family": family}
    try:
        row["versions"] = len(store.versions(client))
        live = None if family is None else store.live(client, family)
        if live is not None:
            row |= {"live": live.version, "rollback_to": live.previous[-1] if live.previous else None}
            row |= summary(store.artefact(client, live.version))
    except StoreError as error:
        row["problem"] = str(error)
    return row


def version_row(store: Store, client: str, version: str) -> dict[str, Any]:
    """One line of ``show CLIENT``: the version, whether it answers, what made it."""
    pointers = [store.live(client, family) for family in store.families(client)]
    row = {"version": version, "state": "live" if any(live and live.version == version for live in pointers) else ""}
    try:
        return row | summary(store.artefact(client, version))
    except StoreError as error:
        return row | {"problem": str(error)}


def summary(artefact: Artefact) -> dict[str, Any]:
    """What one wants to know of a version at a glance."""
    manifest = artefact.manifest
    return {
        "family": manifest.family,
        "method": manifest.method,
        "rank": manifest.rank,
        "base": manifest.base.id,
        "epsilon": manifest.privacy.epsilon if manifest.privacy else None,
        "bytes": sum(entry.bytes for entry in manifest.files.values()),
        "published": artefact.report.get("published"),
    }


def details(artefact: Artefact) -> dict[str, Any]:
    """Everything the version says of itself: its manifest and its report."""
    return {
        "version": artefact.version,
        "path": str(artefact.path),
        "manifest": json.loads(artefact.manifest.canonical_json()),
        "report": artefact.report,
    }


def print_json(value: object) -> None:
    """One JSON document, indented."""
    print(json.dumps(value, indent=1, ensure_ascii=False))


def print_rows(rows: Sequence[Mapping[str, Any]], empty: str) -> None:
    """The rows under their columns; ``empty`` where there is none."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    if not rows:
        print(empty)
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*columns)
        for line in cells:
            table.add_row(*line)
        Console().print(table)
    else:
        for line in (columns, *cells):
            print("\t".join(cell or "-" for cell in line))


def print_tree(value: Mapping[str, Any], indent: str = "") -> None:
    """Nested fields, one a line; long text is shortened, since ``--json`` has all of it."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            print(f"{indent}{key}:")
            print_tree(item, indent + "  ")
        else:
            text = _text(item) if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
            print(f"{indent}{key}: {text if len(text) <= 200 else text[:200] + ' …'}")


def _text(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())
