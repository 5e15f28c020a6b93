"""What the loop asks of an engine: carry parcels to clients, run them, bring updates back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from train.federation.checkpoint import Checkpoint
from train.federation.evaluate import Scores
from train.methods.contract import Turn
from train.models.interfaces import Artefact
from train.tensors import Tensors


@dataclass(frozen=True)
class Reply:
    """What came back from one client: its upload, or the sentence that says why there is none."""

    client: str
    upload: Tensors
    loss: float
    seconds: float
    bytes_down: int
    bytes_up: int
    staged: Path | None  # the client's own new state, to be committed with the round
    refusal: str | None = None


@dataclass(frozen=True)
class Ending:
    """What one client publishes, and its scores by row of the results."""

    artefact: Artefact
    scores: Mapping[str, Scores]


class Backend(Protocol):
    """An engine; replies come back in the order of the parcels."""

    def exchange(self, turn: Turn, parcels: Mapping[str, Tensors], committed: Checkpoint | None) -> list[Reply]:
        """One turn of these clients, each from its parcel and its own committed (later in a round: staged) state."""

    def finish(self, clients: list[str], committed: Checkpoint, shared: Artefact | None) -> dict[str, Ending]:
        """Every client's artefact from its committed state, evaluated beside the references."""
