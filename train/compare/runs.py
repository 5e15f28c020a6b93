"""Run folders read, and gathered into rows: runs that differ in their seed alone are one row."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from train.run.config import RunConfig

ASIDE: Final = ("seed", "publish", "tracking")
"""Parts of a configuration that make no other experiment. Of the base and the federation some do not either."""
ASIDE_WITHIN: Final = {
    "base": ("cache_mib", "cache_folder"),
    "federation": ("threads", "processes", "round_timeout"),
    "evaluate": ("references",),
}


class CompareError(Exception):
    """The sentence to print."""


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, its configuration, and what it found."""

    folder: Path
    config: Mapping[str, Any]
    results: Mapping[str, Any]

    @property
    def seed(self) -> int:
        return int(self.config["seed"])


@dataclass(frozen=True)
class Row:
    """Runs of one experiment, in the order of their seeds, under a name that tells it from the others."""

    name: str
    runs: Sequence[Run]

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]


def read_run(folder: Path) -> Run:
    """CompareError where it is no folder of a finished run."""
    found = []
    for name in ("config.json", "results.json"):
        try:
            found.append(json.loads((folder / name).read_text(encoding="utf-8")))
        except OSError as error:
            hint = "; it is not finished, --resume goes on with it" if name == "results.json" and found else ""
            raise CompareError(f"{folder}: has no {name} that can be read ({error.strerror}){hint}") from None
        except ValueError:
            raise CompareError(f"{folder}: {name} is not JSON") from None
    try:  # what is newer than the run has its default
        config = RunConfig.model_validate(found[0]).model_dump(mode="json")
    except ValueError:
        raise CompareError(f"{folder}: config.json is not a configuration of this version") from None
    return Run(folder, config, found[1])


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """The rows, in the order of their first runs. CompareError where runs cannot stand in one table."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(_experiment(run.config), sort_keys=True), []).append(run)
    for group in groups.values():
        seen: dict[int, Path] = {}
        for run in group:
            if run.seed in seen:
                raise CompareError(f"{run.folder}: the same experiment and seed as {seen[run.seed]}")
            seen[run.seed] = run.folder
    _check_comparable(runs)
    names = _names([json.loads(key) for key in groups])
    return [
        Row(name, sorted(group, key=lambda run: run.seed)) for name, group in zip(names, groups.values(), strict=True)
    ]


def _experiment(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: part for name, part in config.items() if name not in ASIDE}
    for section, fields in ASIDE_WITHIN.items():
        if isinstance(kept.get(section), Mapping):
            kept[section] = {name: value for name, value in kept[section].items() if name not in fields}
    return kept


def _check_comparable(runs: Sequence[Run]) -> None:
    """The same clients with the same data, scored on the same split: else a difference says nothing."""
    first = runs[0]
    for run in runs[1:]:
        for field, one, other in (
            ("data", first.config["data"], run.config["data"]),
            ("evaluate.split", first.config["evaluate"]["split"], run.config["evaluate"]["split"]),
        ):
            if one != other:
                place = next(iter(_differing({field: one}, {field: other})))
                raise CompareError(f"{run.folder}: {place} is another than that of {first.folder}")


def _names(experiments: Sequence[Mapping[str, Any]]) -> list[str]:
    """The method of each, and where several have it, what tells them apart."""
    names = []
    for one in experiments:
        method = str(one["method"]["name"])
        others = [other for other in experiments if other is not one and other["method"]["name"] == method]
        fields = dict.fromkeys(place for other in others for place in _differing(one, other))
        told = [f"{place.removeprefix('method.')} {_at(one, place)}" for place in fields]
        names.append(", ".join([method, *told]))
    return names


def _differing(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two configurations differ, by dotted names."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys((*one, *other)):
            yield from _differing(one.get(name), other.get(name), f"{place}.{name}" if place else name)
    elif one != other:
        yield place


def _at(config: Any, place: str) -> Any:
    for name in place.split("."):
        config = config.get(name) if isinstance(config, Mapping) else None
    return config
