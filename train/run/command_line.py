"""``train/fed.py``'s command line: every field of the configuration is an option, unknown ones name their nearest."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml
from pydantic import ValidationError

from train.errors import ConfigError
from train.run.config import RunConfig
from train.run.option_table import RUN_OPTIONS, Option, is_text, method_fields, nearest, owners, sections, spell, table
from train.section import LATER, Section, misfits_within

S = TypeVar("S", bound=Section)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)

    def format_help(self) -> str:
        """Options by section, and those of a method by method, each with its own defaults."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, [], [])
        formatter.add_text(self.description)
        groups: dict[str, list[argparse.Action]] = {
            "run": [action for action in self._actions if action.dest in ("help", *RUN_OPTIONS)]
        }
        for option in table():
            section = option.name.partition(".")[0] if "." in option.name else "run"
            title = f"method {option.method}" if option.method else section
            if option.name != "method.name":
                groups.setdefault(title, []).append(
                    argparse.Action([f"--{option.name}"], option.name, **_shown(option))
                )
            elif "method" not in groups:
                groups["method"] = [action for action in self._actions if action.dest == "method.name"]
        for title, actions in groups.items():
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def parse(argv: Sequence[str]) -> tuple[RunConfig, argparse.Namespace]:
    """The resolved configuration, and ``config``, ``out`` and ``resume`` as given; ``notes`` has what there is to say
    of it, a sentence each. Raises ConfigError.
    """
    options, further = _parser().parse_known_args(argv)
    wrong = [_unknown(word.split("=")[0].lstrip("-"), "option") for word in further if word.startswith("--")]
    wrong += [f"{word}: found where an option was expected" for word in further[:1] if not word.startswith("--")]
    given = {name: text for name, text in vars(options).items() if text is not None and name not in RUN_OPTIONS}
    options.notes = []
    if options.resume is not None:
        if wrong:
            raise ConfigError("\n".join(wrong))
        return _resumed(options, given), options
    if options.config is None:
        raise ConfigError("\n".join([*wrong, "--config: missing; give a YAML file such as train/configs/demo.yaml"]))
    values = read_yaml(Path(options.config), "--config")
    if "method.name" in given:
        options.notes = _drop_of_another_method_(values, given["method.name"])
    for name, text in given.items():
        try:
            _set(values, name, _value(name, text))
        except ConfigError as error:
            wrong.append(str(error))
    return _validated(values, wrong), options


def _drop_of_another_method_(values: dict[str, Any], method: str) -> list[str]:
    """Takes out of the file's ``method`` what this method does not have, and says so where there was any."""
    held = values.get("method")
    if not isinstance(held, dict) or method not in method_fields():
        return []
    dropped = [str(key) for key in held if key not in method_fields()[method]]
    values["method"] = {key: value for key, value in held.items() if key in method_fields()[method]}
    if not dropped:
        return []
    return [f"method.name: {method} in place of {held.get('name')}, whose {', '.join(dropped)} is dropped"]


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
    for name, option in {option.name: option for option in table()}.items():
        shown = _shown(option) if name != "method.name" else {"metavar": "|".join(method_fields()), "help": METHOD_HELP}
        parser.add_argument(f"--{name}", dest=name, **shown)
    return parser


METHOD_HELP = "the federated method; in place of the file's it keeps of its options those that both have"


def _shown(option: Option) -> dict[str, Any]:
    return {"metavar": spell(option.annotation), "help": option.help.replace("%", "%%")}


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
    """What an option's text says: itself where it is to be a text, else what it is as YAML."""
    if is_text(name):
        return None if text == "null" else text
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


def _validated(values: dict[str, Any], wrong: Sequence[str] = ()) -> RunConfig:
    """ConfigError with everything that is wrong, what was found before first."""
    config, found = checked(RunConfig, values)
    if config is None or wrong or found:
        raise ConfigError("\n".join(dict.fromkeys([*wrong, *found])))
    return config


def checked(kind: type[S], values: Any, *place: str) -> tuple[S | None, list[str]]:
    """A section, at this place of the configuration, and a sentence for everything that is wrong with it; None where
    fields are wrong by themselves."""
    try:
        section = kind.model_validate(values, context=LATER)
    except ValidationError as error:
        return None, list(_sentences(error, place))
    return section, [".".join((*place, sentence)) for sentence in misfits_within(section)]


def _sentences(error: ValidationError, place_of_all: tuple[str, ...]) -> Iterator[str]:
    errors = [found | {"loc": (*place_of_all, *found["loc"])} for found in error.errors(include_url=False)]
    # a misspelt key is also a missing one; the misspelling says more
    misspelt = {found["loc"][:-1] for found in errors if found["type"] == "extra_forbidden"}
    for found in errors:
        place = found["loc"]
        if found["type"] == "missing" and place[:-1] in misspelt:
            continue
        if found["type"] == "too_short" and any(
            place == other["loc"][: len(place)] != other["loc"] for other in errors
        ):
            continue  # a list is short of what is wrong in it
        dotted, chosen = _dotted(place)
        if found["type"] == "extra_forbidden":
            yield f"{dotted}: unknown key of {chosen[-1]}" if len(chosen) > 1 else _unknown(dotted, "key", *chosen)
            continue
        message = found["msg"].removeprefix("Value error, ")
        shown = f" (found {found['input']!r})" if any(option.name == dotted for option in table()) else ""
        yield f"{dotted}: {message}{shown}"


def _dotted(place: Sequence[str | int]) -> tuple[str, list[str]]:
    """The option's name at pydantic's place, and the alternatives of unions on the way there, which the place has too:
    a method's name, an aggregator's rule."""
    parts: list[str] = []
    chosen = []
    for part in map(str, place[:-1]):
        if ".".join(parts) in sections() and ".".join([*parts, part]) not in sections() | _names():
            chosen.append(part)
        else:
            parts.append(part)
    return ".".join([*parts, *map(str, place[-1:])]), chosen


def _names() -> frozenset[str]:
    return frozenset(option.name for option in table())


def _unknown(name: str, kind: str, method: str | None = None) -> str:
    if method is not None and owners(name):
        takes = ", ".join(field for field in method_fields()[method] if field != "name")
        return f"{name}: unknown key of {method}, which takes {takes}; {', '.join(owners(name))} have it"
    near = nearest(name)
    return f"{name}: unknown {kind}{f'; did you mean {near}?' if near else '; --help lists them all'}"
