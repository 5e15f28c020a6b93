"""The part of the Dockerfile language that ours uses, read into instructions per stage."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path


@dataclass(frozen=True)
class Instruction:
    """One instruction, its continued lines joined: ``RUN``, ``make install``."""

    name: str
    text: str

    @property
    def command(self) -> list[str]:
        """What a RUN, CMD or HEALTHCHECK's CMD executes; text goes through the shell, a JSON list does not."""
        return json.loads(self.text) if self.text.startswith("[") else ["/bin/sh", "-c", self.text]


@dataclass(frozen=True)
class Stage:
    """One ``FROM … AS name`` with what follows it."""

    base: str
    name: str
    instructions: list[Instruction]


def parse(text: str) -> dict[str, Stage]:
    """The stages by name, in the order of the file."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", lines)
    stages: dict[str, Stage] = {}
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            stages[stage] = Stage(base, stage, [])
        else:
            list(stages.values())[-1].instructions.append(Instruction(name, rest.strip()))
    return stages


def chain(stages: dict[str, Stage], target: str) -> list[Instruction]:
    """Every instruction that makes the target, those of the stages it builds on first."""
    stage = stages[target]
    return [*(chain(stages, stage.base) if stage.base in stages else []), *stage.instructions]


def assignments(text: str) -> dict[str, str]:
    """The variables of an ENV instruction."""
    return dict(word.split("=", 1) for word in shlex.split(text))


def context(root: Path, ignore: str) -> Iterator[Path]:
    """The files that a build of ``root`` is sent, relative to it: all but what ``.dockerignore`` names."""
    patterns = [line.rstrip("/") for line in ignore.splitlines() if line and not line.startswith("#")]

    def ignored(path: str) -> bool:
        return any(fnmatchcase(path, p) or fnmatchcase(path, p.removeprefix("**/")) for p in patterns) or any(
            fnmatchcase(path.rpartition("/")[2], p.removeprefix("**/")) for p in patterns if p.startswith("**/")
        )

    def walk(folder: Path) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            relative = path.relative_to(root)
            if ignored(relative.as_posix()):
                continue
            if path.is_dir() and not path.is_symlink():
                yield from walk(path)
            else:
                yield relative

    return walk(root)
