"""A section of a configuration: its fields are checked one by one, then whether they fit together, all at once."""

from collections.abc import Iterator
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator

LATER: Final = {"misfits": "later"}
"""Validation's context where the caller asks for the misfits of a whole configuration itself."""


class Section(BaseModel):
    """Frozen, without unknown fields. Validated by itself it refuses its misfits, a line each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def misfits(self) -> Iterator[str]:
        """A sentence for each thing that does not fit together in it, which begins with the field's name."""
        yield from ()

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo) -> Self:
        if info.context is not LATER and (wrong := list(self.misfits())):
            raise ValueError("\n".join(wrong))
        return self


def misfits_within(section: Section) -> Iterator[str]:
    """The misfits of a section and of those in it, each under its whole name: ``client.local_steps: …``."""
    for name, value in section:
        yield from (f"{name}.{sentence}" for sentence in _misfits_of(value))
    yield from section.misfits()


def _misfits_of(value: Any) -> Iterator[str]:
    if isinstance(value, Section):
        yield from misfits_within(value)
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from (f"{i}.{sentence}" for sentence in _misfits_of(item))
