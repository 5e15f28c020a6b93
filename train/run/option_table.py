"""The fields of the configuration as options: their names, what they take, their defaults, and which one was meant."""

import difflib
import functools
import re
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from train.run.config import RunConfig

RUN_OPTIONS = ("config", "out", "resume")  # about the run, not part of its configuration


@dataclass(frozen=True)
class Option:
    """A leaf of the configuration; ``method`` is whose it is, for those of the section ``method``."""

    name: str
    annotation: Any
    description: str
    default: Any
    method: str | None

    @property
    def help(self) -> str:
        unset = self.default is None or self.default is PydanticUndefined
        return self.description if unset else f"{self.description} (default: {self.default})"


@functools.cache
def table() -> tuple[Option, ...]:
    """Every leaf in the configuration's order; a method's once for each method that has it."""
    return tuple(_leaves(RunConfig))


@functools.cache
def method_fields() -> dict[str, tuple[str, ...]]:
    """What the section ``method`` may hold, by method."""
    return {
        section.model_fields["name"].default: tuple(section.model_fields)
        for section in _sections(RunConfig.model_fields["method"].annotation)
    }


def _leaves(
    model: type[BaseModel], prefix: str = "", values: BaseModel | None = None, method: str | None = None
) -> Iterator[Option]:
    """``values`` has the defaults where the section that is walked has others than its class."""
    for name, field in model.model_fields.items():
        default = field.default if values is None else getattr(values, name)
        sections = _sections(field.annotation)
        tag = field.discriminator if f"{prefix}{name}" != "method" else None
        if not sections:
            yield Option(f"{prefix}{name}", field.annotation, field.description or "", default, method)
        if tag is not None:  # one choice among the alternatives, and what each of them has besides
            choice = Literal[tuple(section.model_fields[str(tag)].default for section in sections)]  # type: ignore[valid-type]
            yield Option(f"{prefix}{name}.{tag}", choice, field.description or "", getattr(default, str(tag)), method)
        for section in sections:
            owner = section.model_fields["name"].default if f"{prefix}{name}" == "method" else method
            held = default if isinstance(default, section) else None
            leaves = _leaves(section, f"{prefix}{name}.", held, owner)
            yield from (option for option in leaves if option.name != f"{prefix}{name}.{tag}")


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The models among a field's alternatives."""
    alternatives = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return [t for t in alternatives if isinstance(t, type) and issubclass(t, BaseModel)]


def spell(annotation: Any) -> str:
    """A type as a reader of --help wants it: ``a|b`` for choices, ``[x, …]`` for lists, nothing about None."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return "|".join(map(str, arguments))
    if get_origin(annotation) is Annotated:
        return spell(arguments[0])
    if get_origin(annotation) is tuple:
        return f"[{spell(arguments[0])}, …]"
    if get_origin(annotation) in (Union, types.UnionType):
        return "|".join(spell(argument) for argument in arguments if argument is not types.NoneType)
    return str(annotation.__name__)


def is_text(name: str) -> bool:
    """Whether this option is a text, to be taken as it is written."""
    return all(_is_text(option.annotation) for option in table() if option.name == name)


def _is_text(annotation: Any) -> bool:
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return all(isinstance(argument, str) for argument in arguments)
    if get_origin(annotation) is Annotated:
        return _is_text(arguments[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return all(_is_text(argument) for argument in arguments if argument is not types.NoneType)
    return annotation is str


@functools.cache
def sections() -> frozenset[str]:
    """The dotted names of everything that holds options."""
    names = (option.name.split(".") for option in table())
    return frozenset(".".join(parts[:i]) for parts in names for i in range(1, len(parts)))


def owners(name: str) -> list[str]:
    """The methods that have this option, or options in this section; none where it is not a method's."""
    of = {option.method for option in table() if f"{option.name}.".startswith(f"{name}.")}
    return sorted(method for method in of if method is not None)


def nearest(name: str) -> str | None:
    """The option that was probably meant: by what it is for, then by its spelling in that section, then in any."""
    described = _described(name)
    if described is not None:
        return described
    section, _, leaf = name.rpartition(".")
    known = [*RunConfig.model_fields, *RUN_OPTIONS, *dict.fromkeys(option.name for option in table())]
    beside = [full for full in known if full.rpartition(".")[0] == section]
    return _closest(leaf, beside) or _closest(leaf, known)


def _described(name: str) -> str | None:
    """The option whose description is made of the words of this name more than any other's is."""
    section, _, leaf = name.rpartition(".")
    words = set(leaf.split("_"))
    if len(words) < 2:
        return None
    described = [(option, set(re.findall(r"\w+", option.description.lower()))) for option in table()]
    fitting = [(option, said) for option, said in described if words <= said and option.name.startswith(section)]
    return min(fitting, key=lambda found: len(found[1]))[0].name if fitting else None


def _closest(leaf: str, names: Iterable[str]) -> str | None:
    by_leaf: dict[str, str] = {}
    for full in names:
        by_leaf.setdefault(full.rpartition(".")[2], full)
    found = difflib.get_close_matches(leaf, list(by_leaf), 1, 0.5)
    return by_leaf[found[0]] if found else None
