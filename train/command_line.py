"""``train/fed.py``'s command line: every field of the configuration is an option, unknown ones name their nearest."""

import argparse
import difflib
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from train.config import RunConfig
from train.errors import ConfigError

RUN_OPTIONS = ("config", "out", "resume")  # about the run, not part of its configuration


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def parse(argv: Sequence[str]) -> tuple[RunConfig, argparse.Namespace]:
    """The resolved configuration, and ``config``, ``out`` and ``resume`` as given. Raises ConfigError."""
    parser = _parser()
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        raise ConfigError(_unknown(unknown[0].split("=")[0].lstrip("-"), "option"))
    given = {name: text for name, text in vars(options).items() if text is not None and name not in RUN_OPTIONS}
    if options.resume is not None:
        return _resumed(options, given), options
    if options.config is None:
        raise ConfigError("--config: missing; give a YAML file such as train/configs/fedit_scenes.yaml")
    values = read_yaml(Path(options.config), "--config")
    for name, text in given.items():
        _set(values, name, _value(name, text))
    return _validated(values), options


def _resumed(options: argparse.Namespace, given: dict[str, str]) -> RunConfig:
    """The run's own configuration; with more rounds where that is asked."""
    if options.config or options.out or given.keys() - {"federation.rounds"}:
        raise ConfigError(
            "--resume: goes on with the run's own configuration; only --federation.rounds may be given with it"
        )
    values = read_yaml(Path(options.resume) / "config.json", "--resume")
    config = _validated(values)
    if "federation.rounds" not in given:
        return config
    before = config.federation.rounds
    _set(values, "federation.rounds", _value("federation.rounds", given["federation.rounds"]))
    config = _validated(values)
    if config.federation.rounds < before:
        found = config.federation.rounds
        raise ConfigError(
            f"federation.rounds: found {found}; the run in {options.resume} has {before}, or may get more"
        )
    if config.federation.rounds > before and config.privacy.dp and config.privacy.dp.target_epsilon is not None:
        rounds = "1 round" if before == 1 else f"{before} rounds"
        raise ConfigError(
            f"privacy.dp.target_epsilon: its noise was chosen for {rounds}, so the run in {options.resume} cannot get "
            "more; start another"
        )
    return config


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="train/fed.py",
        usage="accelerate launch train/fed.py --config YAML [--section.field value …] [--out DIR] | --resume DIR",
        description="Federated rounds from a configuration, to evaluated and published versions.",
        epilog="Lists are written as YAML: --data.styles '[cartoon, sketch]'.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="YAML", help="configuration file; the options below override it")
    parser.add_argument("--out", metavar="DIR", help="run folder (default: runs/<config name>-<seed>)")
    parser.add_argument("--resume", metavar="DIR", help="continue the run in this folder, with its own configuration")
    for name, field in _fields(RunConfig):
        parser.add_argument(f"--{name}", dest=name, metavar=_spell(field.annotation), help=_help(field))
    return parser


def _fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every leaf of the configuration as (dotted name, field), a name once even where two methods share it."""
    seen: set[str] = set()
    for name, field in model.model_fields.items():
        sections = _sections(field.annotation)
        if not sections:
            yield f"{prefix}{name}", field
        for section in sections:
            for dotted, leaf in _fields(section, f"{prefix}{name}."):
                if dotted not in seen:
                    seen.add(dotted)
                    yield dotted, leaf


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The models among a field's alternatives."""
    alternatives = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return [t for t in alternatives if isinstance(t, type) and issubclass(t, BaseModel)]


def _spell(annotation: Any) -> str:
    """A type as a reader of --help wants it: ``a|b`` for choices, ``[x, …]`` for lists, nothing about None."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return "|".join(map(str, arguments))
    if get_origin(annotation) is Annotated:
        return _spell(arguments[0])
    if get_origin(annotation) is tuple:
        return f"[{_spell(arguments[0])}, …]"
    if get_origin(annotation) in (Union, types.UnionType):
        return "|".join(_spell(argument) for argument in arguments if argument is not types.NoneType)
    return str(annotation.__name__)


def _help(field: FieldInfo) -> str:
    text = field.description or ""
    if field.default not in (PydanticUndefined, None):
        text += f" (default: {field.default})"
    return text.replace("%", "%%")


def read_yaml(path: Path, option: str) -> dict[str, Any]:
    """The sections of a configuration file that ``option`` named. Raises ConfigError."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{option}: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option}: {path} is not a text in UTF-8") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{option}: {path} is not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{option}: {path} must hold sections such as 'data:', not a {type(values).__name__}")
    return values


def _value(name: str, text: str) -> Any:
    """What an option's text says."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"{name}: {text!r} is not YAML") from None


def _set(values: dict[str, Any], name: str, value: Any) -> None:
    """Puts it in its section, which is made where it is missing or the file switches it off."""
    *path, last = name.split(".")
    for i, part in enumerate(path):
        if values.get(part) is None:
            values[part] = {}
        values = values[part]
        if not isinstance(values, dict):
            section = ".".join(path[: i + 1])
            raise ConfigError(
                f"{section}: found {values!r}; a section of fields is needed, as {section}: {{{last}: …}}"
            )
    values[last] = value


def _validated(values: dict[str, Any]) -> RunConfig:
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    errors = error.errors(include_url=False)
    # a misspelt key is also a missing one; the misspelling says more
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    parts = [str(part) for part in first["loc"]]
    # a union's chosen alternative is part of pydantic's location but not of the option's name
    dotted = ".".join(part for i, part in enumerate(parts) if not (i == 1 and parts[0] == "method"))
    if first["type"] == "extra_forbidden":
        return _unknown(dotted, "key")
    message = first["msg"].removeprefix("Value error, ")
    found = f" (found {first['input']!r})" if dotted in _known() else ""
    return f"{dotted or 'configuration'}: {message}{found}"


def _known() -> list[str]:
    return [name for name, _ in _fields(RunConfig)]


def _unknown(name: str, kind: str) -> str:
    known = [*RunConfig.model_fields, *_known(), *RUN_OPTIONS]
    by_leaf = {full.rsplit(".", 1)[-1]: full for full in known}
    near = difflib.get_close_matches(name, known, 1, 0.5) or [
        by_leaf[leaf] for leaf in difflib.get_close_matches(name.rsplit(".", 1)[-1], list(by_leaf), 1, 0.5)
    ]
    hint = f"; did you mean {near[0]}?" if near else "; --help lists them all"
    return f"{name}: unknown {kind}{hint}"
