"""``python -m train.merge --method M --base BASE --adapters A B … --out DIR``: many adapters or models into one.

They may come from anywhere; no federation is needed. Nothing that is read is ever unpickled.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType, NoneType
from typing import Any, Final, Literal, NoReturn, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from train.merge.options import MergeOptions, option

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads starve the other processes of this machine
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a base is a local folder or a cached one, never a download
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns of an optional kernel package on every CPU
PROGRAM: Final = "python -m train.merge"
ENDED: Final = threading.Event()
"""Whether SIGTERM came: its SystemExit may be raised inside C code that makes a ValueError of it."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Merges as the arguments say; 0, or 2 after one sentence on standard error where they cannot be followed."""
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        from train.merge.run import merge  # loads torch, once the arguments are known to be good

        print("\n".join(merge(options)))
    except (ValueError, OSError) as error:
        if ENDED.is_set():
            return 128 + signal.SIGTERM
        print(f"{PROGRAM}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


def parse(argv: Sequence[str]) -> MergeOptions:
    """The options. Raises ValueError: one sentence with the option, what was found, what is allowed."""
    given = vars(_parser().parse_args(argv))
    try:
        return MergeOptions.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            raise ValueError(message) from None
        raise ValueError(f"{option(str(first['loc'][0]))}: {message} (found {first['input']!r})") from None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} --method M [--base BASE] --adapters A B … --out DIR [--option value …]",
        description="Merges LoRA adapters or full checkpoints into one.",
        allow_abbrev=False,
    )
    for name, field in MergeOptions.model_fields.items():
        text = field.description or ""
        if field.default not in (PydanticUndefined, None):
            text += f" (default: {field.default})"
        several: dict[str, Any] = {"nargs": "+"} if name == "adapters" else {}
        parser.add_argument(
            option(name),
            metavar=_spell(field.annotation),
            help=text.replace("%", "%%"),
            required=field.is_required(),
            **several,
        )
    return parser


def _spell(annotation: Any) -> str:
    """A type as a reader of --help wants it: the choices of a Literal, the alternatives of a union."""
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    alternatives = [part for part in get_args(annotation) if part not in (NoneType, Ellipsis)]
    return "|".join(map(_spell, alternatives)) or str(annotation.__name__.upper())


def _end(number: int, frame: FrameType | None) -> NoReturn:
    ENDED.set()
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)  # so that what was half written is removed
    sys.exit(main())
