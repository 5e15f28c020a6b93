"""The contract of a federated method: what a client trains and uploads, what the server computes, what is published.

A method is one small class; the loop (train/federation/rounds.py) and the client (client.py beside it) never name one.
The defaults here are FedAvg (McMahan et al. 2017) on whatever ``initial`` returns; a method overrides only what its
paper changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field
from torch import Tensor

from adapters_store.versions.manifest import Trust
from train.aggregation import Aggregation, Mean
from train.aggregation.averaging import shares
from train.data import ClientData
from train.models.interfaces import Artefact, Outputs, Personal, ResidentModel
from train.section import Section
from train.tensors import Schema, Tensors, schema_of


@dataclass(frozen=True)
class ClientInfo:
    """What the server may know of a client before any round."""

    id: str
    examples: int
    class_names: tuple[str, ...] = ()
    task: str = ""

    @classmethod
    def of(cls, client: ClientData) -> "ClientInfo":
        """What is known of this one; several tasks mixed in one client are a task of their own."""
        task = "+".join(sorted({example.task for example in client.train}))
        return cls(client.id, len(client.train), client.class_names, task)


@dataclass(frozen=True)
class Turn:
    """One client's spell of training: ``exchange`` counts within a round, the personal turn comes after the last."""

    kind: Literal["train", "personal"]
    round: int
    exchange: int = 0


@dataclass(frozen=True)
class Update:
    """What arrived from one client."""

    client: str
    examples: int
    tensors: Tensors


@dataclass(frozen=True)
class ServerContext:
    """What a server may use to combine: its own resident base, the seed, and when it is.

    ``exchanges``: how many there are in this round for each client that takes part in it.
    """

    model: "ResidentModel"
    clients: Sequence[ClientInfo]
    seed: int
    round: int
    exchange: int
    exchanges: Mapping[str, int] = field(default_factory=dict)


Model = TypeVar("Model", bound=ResidentModel)


class MethodOptions(Section):
    """Options every method has."""

    weighting: Literal["examples", "uniform"] = Field("examples", description="p_k ∝ n_k, or 1/K")


class AveragingOptions(MethodOptions):
    """Of a method whose server takes the clients' mean, for which any aggregator can stand."""

    aggregator: Aggregation = Field(Mean(), description="what the server makes of the updates")


class Method(Generic[Model]):
    """FedAvg on a resident base of class ``Model``; a subclass says what is trained, published, and different."""

    name: ClassVar[str]
    family: Literal["mllm", "clip"]
    trust: ClassVar[Trust]
    fine_tunes: ClassVar[bool] = True  # whether personal steps make the personal version; else it is what trained last
    one_shot: ClassVar[bool] = False  # whether clients talk once: one round
    clients: ClassVar[int | None] = None  # how many there must be; any number where None
    options: MethodOptions

    def __init__(self, options: Any) -> None:
        self.options = options

    def initial(self, model: Model, clients: Sequence[ClientInfo], seed: int) -> Tensors:
        """The server's state before the first round."""
        raise NotImplementedError

    def enrol(self, model: Model, client: ClientInfo, seed: int) -> Tensors:
        """A client's own state before it first takes part; nothing by default."""
        return {}

    def exchanges(self, client: ClientInfo, round: int, first: bool) -> int:
        """How many times this client trains and uploads in this round; ``first`` when it never took part before."""
        return 1

    def build(self, model: Model, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        """Puts a client's state on the resident base; ``turn`` is None for evaluation."""
        raise NotImplementedError

    def trainable(self, names: Sequence[str], turn: Turn, step: int, steps: int) -> Sequence[str]:
        """Which of the parameters move at this local step."""
        return names

    def rate(self, name: str, scheduled: float) -> float:
        """This parameter's learning rate, where the schedule says ``scheduled``."""
        return scheduled

    def loss(self, outputs: Outputs, turn: Turn) -> Tensor:
        """The whole training loss; a method adds its terms to the task's."""
        return outputs.loss

    def upload(self, state: Tensors, turn: Turn) -> Tensors:
        """Exactly what leaves the client."""
        return state

    def expected(self, state: Tensors, client: ClientInfo, turn: Turn) -> Schema:
        """The schema an update must have on arrival, from the server's state."""
        return schema_of(self.parcel(state, client))

    def combine(self, state: Tensors, updates: Sequence[Update], context: ServerContext) -> Tensors:
        """The server's step, deterministic in its inputs: the aggregator's over the updates, in client order."""
        weights = shares([update.examples for update in updates], self.options.weighting)
        aggregator = self.options.aggregator if isinstance(self.options, AveragingOptions) else Mean()
        return aggregator.combine(state, [update.tensors for update in updates], weights)

    def diagnose(self, state: Tensors, updates: Sequence[Update]) -> dict[str, float]:
        """Figures about one aggregation for the log, by name; ``state`` is what ``combine`` returned."""
        return {}

    def parcel(self, state: Tensors, client: ClientInfo) -> Tensors:
        """What this client is sent."""
        return state

    def absorb(self, state: Tensors, parcel: Tensors, turn: Turn) -> Tensors:
        """The client's state once it has the parcel, before this turn's training."""
        return {**state, **parcel}

    def settle(self, model: Model, state: Tensors, data: ClientData) -> Tensors:
        """The client's state after its last turn, with what it works out from its own data once; it stays with it."""
        return state

    def publish(self, model: Model, client: ClientInfo, state: Tensors) -> Artefact:
        """A client's personal artefact, from its own state."""
        raise NotImplementedError

    def publish_global(self, model: Model, clients: Sequence[ClientInfo], state: Tensors) -> Artefact | None:
        """The artefact for everybody else, from the server's state; None where a method has none."""
        raise NotImplementedError

    def restore(self, files: Mapping[str, bytes]) -> Tensors:
        """The client state that a published artefact holds: what is evaluated is what is published."""
        raise NotImplementedError
