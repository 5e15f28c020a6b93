"""``python -m adapters_store``: look at the store, switch versions, clean up, and copy it to or from a mirror."""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapters_store.listing import client_rows, details, live_row, print_json, print_rows, print_tree, version_row
from adapters_store.paths import default_store, resolve
from adapters_store.store import Store, StoreError
from adapters_store.versions.manifest import FAMILIES


def parser() -> argparse.ArgumentParser:
    """The command line, every option documented."""
    root = argparse.ArgumentParser(prog="python -m adapters_store", description="Versions of every client's adapters.")
    root.add_argument(
        "--store",
        type=Path,
        default=default_store(),
        metavar="DIR",
        help="default: %(default)s; closed to all but its owner, as whom training, gateway and this command run",
    )
    root.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[Store, argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        # taken before the command and after it
        added.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        added.add_argument("--store", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        added.set_defaults(run=run)
        return added

    command("list", _list, "every client and the versions that answer for it, one a family")
    show = command("show", _show, "a client's versions, or one version's manifest and report")
    show.add_argument("client")
    show.add_argument("version", nargs="?")
    verify = command(
        "verify", _verify, "read and check every byte of a version, of a client's, or of all; exit 1 on refusal"
    )
    verify.add_argument("client", nargs="?")
    verify.add_argument("version", nargs="?")
    verify.add_argument("--base-id", metavar="HEX", help="refuse versions trained over another base")
    verify.add_argument("--max-rank", type=int, metavar="R", help="refuse versions of a larger rank")
    activate = command("activate", _activate, "let a version answer for its client, in its family")
    activate.add_argument("client")
    activate.add_argument("version")
    activate.add_argument(
        "--canary", type=int, metavar="PERCENT", help="refused: no gateway gives a version a share of conversations yet"
    )
    rollback = command("rollback", _rollback, "go back to the version that answered before")
    rollback.add_argument("client")
    rollback.add_argument("--family", choices=FAMILIES, help="needed where a client has live versions of both")
    gc = command("gc", _gc, "delete old versions; never a live one, or the targets kept")
    gc.add_argument("--keep", type=int, default=2, help="rollback targets and newest versions to keep (default 2)")
    gc.add_argument("--dry-run", action="store_true", help="name what would be deleted, delete nothing")
    command("push", _push, "copy the store to a mirror (any fsspec URL; one writer)").add_argument("url")
    command("pull", _pull, "copy a mirror's versions and pointers into the store").add_argument("url")
    return root


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, or 1 after a sentence on stderr."""
    given = parser().parse_args(arguments)
    try:
        code: int = given.run(Store(resolve(given.store)), given)
    except (StoreError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return code


def _list(store: Store, given: argparse.Namespace) -> int:
    rows = [row for client in store.clients() for row in client_rows(store, client)]
    print_json(rows) if given.json else print_rows(rows, f"the store {store.root} is empty")
    return 0


def _show(store: Store, given: argparse.Namespace) -> int:
    if given.version is not None:
        shown = details(store.artefact(given.client, given.version))
        print_json(shown) if given.json else print_tree(shown)
        return 0
    versions = store.versions(given.client)
    if not versions:
        raise StoreError(f"client {given.client!r} has no version in the store {store.root}")
    rows = [version_row(store, given.client, version) for version in versions]
    print_json(rows) if given.json else print_rows(rows, "")
    return 0


def _verify(store: Store, given: argparse.Namespace) -> int:
    clients = [given.client] if given.client else store.clients()
    rows: list[dict[str, Any]] = []
    for client in clients:
        try:
            versions = [given.version] if given.version else store.versions(client)
        except StoreError as error:
            rows.append({"client": client, "version": None, "result": str(error)})
            continue
        rows += [_verified(store, client, version, given) for version in versions]
    if given.client and not rows:
        raise StoreError(f"client {given.client!r} has no version in the store {store.root}")
    print_json(rows) if given.json else print_rows(rows, f"the store {store.root} is empty")
    return int(any(row["result"] != "sound" for row in rows))


def _verified(store: Store, client: str, version: str, given: argparse.Namespace) -> dict[str, Any]:
    row = {"client": client, "version": version, "result": "sound"}
    try:
        store.verify(client, version, base_id=given.base_id, max_rank=given.max_rank)
    except StoreError as error:
        row["result"] = str(error)
    return row


def _activate(store: Store, given: argparse.Namespace) -> int:
    if given.canary is not None:
        store.set_canary(given.client, given.version, given.canary)
    store.activate(given.client, given.version)
    return _now(store, given, given.version)


def _rollback(store: Store, given: argparse.Namespace) -> int:
    return _now(store, given, store.rollback(given.client, given.family))


def _now(store: Store, given: argparse.Namespace, version: str) -> int:
    row = live_row(store, given.client, store.artefact(given.client, version).manifest.family)
    print_json(row) if given.json else print_rows([row], "")
    return 0


def _gc(store: Store, given: argparse.Namespace) -> int:
    removed = store.gc(given.keep, dry_run=given.dry_run)
    what = "to remove" if given.dry_run else "removed"
    print_json(removed) if given.json else print_rows([{what: name} for name in removed], "nothing to remove")
    return 0


def _push(store: Store, given: argparse.Namespace) -> int:
    return _mirror("push", store, given)


def _pull(store: Store, given: argparse.Namespace) -> int:
    return _mirror("pull", store, given)


def _mirror(direction: str, store: Store, given: argparse.Namespace) -> int:
    from adapters_store.mirror import mirror  # numpy and fsspec, which listing never needs

    moved = mirror.push(store, given.url) if direction == "push" else mirror.pull(given.url, store)
    done = {"copied": moved.copied, "pointed": moved.pointed, "refused": moved.refused}
    rows = [{"what": what, "which": name} for what, names in done.items() for name in names]
    print_json(done) if given.json else print_rows(rows, "nothing to copy")
    return int(bool(moved.refused))


if __name__ == "__main__":
    sys.exit(main())
