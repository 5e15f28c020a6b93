"""`python -m train.data`: look at a client's data, or convert a data set.

python -m train.data sheet --config X.yaml --client ID --out sheet.png
python -m train.data convert-cifar cifar-10-batches-py cifar-10-batches-bin
"""

import argparse
import sys
from pathlib import Path

from train.data.config import DataConfig
from train.data.federation import build
from train.data.readers.convert_cifar import convert_cifar
from train.data.sheet import save_sheet
from train.errors import ConfigError, in_words
from train.run.command_line import checked, read_yaml


class SheetError(Exception):
    """The sentence to print."""


def _read(path: Path) -> tuple[DataConfig, int]:
    """The `data:` and `seed:` parts of a configuration file."""
    content = read_yaml(path, "--config")
    config, wrong = checked(DataConfig, content.get("data", {}), "data")
    if config is None or wrong:
        raise SheetError("\n".join(wrong))
    return config, int(content.get("seed", 0))


def _sheet(config_path: Path, client: str, out: Path) -> None:
    config, seed = _read(config_path)
    clients = {data.id: data for data in build(config, seed)}
    if client not in clients:
        raise SheetError(f"--client: found {client!r}, allowed are {', '.join(clients)}")
    save_sheet(clients[client], out)
    print(f"{out}: {clients[client].note}")


def _convert(source: Path, out: Path) -> None:
    convert_cifar(source, out)
    print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m train.data", description="Look at federated data, or convert it.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    sheet = commands.add_parser("sheet", help="write a contact sheet of one client's examples")
    sheet.add_argument("--config", type=Path, required=True, help="YAML with `data:` and `seed:`")
    sheet.add_argument("--client", required=True, help="client id, e.g. client-00")
    sheet.add_argument("--out", type=Path, required=True, help="PNG to write")
    sheet.set_defaults(run=lambda options: _sheet(options.config, options.client, options.out))
    convert = commands.add_parser("convert-cifar", help="write the binary version of CIFAR's Python version")
    convert.add_argument("source", metavar="IN", type=Path, help="cifar-10-batches-py or cifar-100-python")
    convert.add_argument("out", metavar="OUT", type=Path, help="new folder, e.g. cifar-10-batches-bin")
    convert.set_defaults(run=lambda options: _convert(options.source, options.out))
    options = parser.parse_args()
    try:
        options.run(options)
    except (SheetError, ConfigError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(in_words(error), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
