"""`python -m train.data sheet --config X.yaml --client ID --out sheet.png`: look at a client's data."""

import argparse
import sys
from pathlib import Path

import yaml
from pydantic import ValidationError

from train.data.config import DataConfig
from train.data.federation import build
from train.data.sheet import save_sheet


class SheetError(Exception):
    """The sentence to print."""


def _read(path: Path) -> tuple[DataConfig, int]:
    """The `data:` and `seed:` parts of a configuration file."""
    if not path.is_file():
        raise SheetError(f"--config: found {str(path)!r}, which is no file")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise SheetError(f"--config: {path} holds no settings; it must have a `data:` section")
    try:
        return DataConfig.model_validate(content.get("data", {})), int(content.get("seed", 0))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("data", *first["loc"]))
        raise SheetError(f"{where}: {first['msg'].removeprefix('Value error, ')} (found {first['input']!r})") from None


def _sheet(config_path: Path, client: str, out: Path) -> None:
    config, seed = _read(config_path)
    clients = {data.id: data for data in build(config, seed)}
    if client not in clients:
        raise SheetError(f"--client: found {client!r}, allowed are {', '.join(clients)}")
    save_sheet(clients[client], out)
    print(f"{out}: {clients[client].note}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m train.data", description="Look at the embedded federated data.")
    sheet = parser.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "sheet", help="write a contact sheet of one client's examples"
    )
    sheet.add_argument("--config", type=Path, required=True, help="YAML with `data:` and `seed:`")
    sheet.add_argument("--client", required=True, help="client id, e.g. client-00")
    sheet.add_argument("--out", type=Path, required=True, help="PNG to write")
    options = parser.parse_args()
    try:
        _sheet(options.config, options.client, options.out)
    except (SheetError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
