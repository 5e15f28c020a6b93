"""Between a method and a model: the resident base, a client's own modules on it, what is published of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Generator, Tensor, nn

from adapters_store.pictures.transform import ImageTransform
from adapters_store.versions.manifest import BaseRef
from train.data import Example


class ResidentModel(Protocol):
    """A frozen base, loaded once a process; clients are swapped in place on it."""

    family: Literal["mllm", "clip"]
    base: BaseRef
    image_transform: ImageTransform


@dataclass(frozen=True)
class Outputs:
    """Of one batch: the task loss (scalar) and whatever a method's extra terms need."""

    loss: Tensor
    extras: Mapping[str, Tensor]


class Personal(Protocol):
    """A client's own modules in place on the resident base."""

    parameters: Mapping[str, nn.Parameter]

    def prepare(self, examples: Sequence[Example], augment: Generator | None = None) -> Any:
        """The examples with everything frozen computed once (features, tokens).

        With random numbers to ``augment`` by, images are changed anew in every batch instead (family clip).
        """

    def outputs(self, prepared: Any, rows: Sequence[int]) -> Outputs:
        """Forward pass over these rows of what ``prepare`` returned."""

    def answer(self, examples: Sequence[Example]) -> list[str]:
        """The model's own answers: greedy text, or the best class's name."""


@dataclass(frozen=True)
class Artefact:
    """The files of one publishable version and what its manifest says of them."""

    role: Literal["personal", "global"]
    files: Mapping[str, bytes]
    prompt_template: str
    class_names: tuple[str, ...] = ()
    rank: int | None = None
    target_modules: list[str] | None = None
