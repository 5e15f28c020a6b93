"""The reference without communication: what a client reaches alone, with the same modules and as many steps."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from adapters_store.versions.manifest import Trust
from train.data import ClientData
from train.methods.contract import ClientInfo, Method, ServerContext, Turn, Update
from train.models.interfaces import Artefact, Outputs, Personal
from train.tensors import Schema, Tensors


class Local(Method[Any]):
    """Another method's modules and losses, trained by each client on its own; nothing is uploaded or sent."""

    name: ClassVar[str] = "local"
    trust: ClassVar[Trust] = Trust(serving_host=["personal artefacts"], client_only=["everything else"])

    def __init__(self, modules_of: Method[Any]) -> None:
        super().__init__(modules_of.options)
        self.modules_of = modules_of

    def initial(self, model: Any, clients: Sequence[ClientInfo], seed: int) -> Tensors:
        return {}

    def enrol(self, model: Any, client: ClientInfo, seed: int) -> Tensors:
        """The state the client would train from in its first turn."""
        method = self.modules_of
        start = method.parcel(method.initial(model, [client], seed), client)
        return {**method.enrol(model, client, seed), **start}

    def build(self, model: Any, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        return self.modules_of.build(model, client, state, turn)

    def trainable(self, names: Sequence[str], turn: Turn, step: int, steps: int) -> Sequence[str]:
        return self.modules_of.trainable(names, turn, step, steps)

    def loss(self, outputs: Outputs, turn: Turn) -> Tensor:
        return self.modules_of.loss(outputs, turn)

    def exchanges(self, client: ClientInfo, round: int, first: bool) -> int:
        return self.modules_of.exchanges(client, round, first)

    def rate(self, name: str, scheduled: float) -> float:
        return self.modules_of.rate(name, scheduled)

    def upload(self, state: Tensors, turn: Turn) -> Tensors:
        return {}

    def expected(self, state: Tensors, client: ClientInfo, turn: Turn) -> Schema:
        return {}

    def combine(self, state: Tensors, updates: Sequence[Update], context: ServerContext) -> Tensors:
        return state

    def absorb(self, state: Tensors, parcel: Tensors, turn: Turn) -> Tensors:
        return self.modules_of.absorb(state, {}, turn)

    def settle(self, model: Any, state: Tensors, data: ClientData) -> Tensors:
        return self.modules_of.settle(model, state, data)

    def publish(self, model: Any, client: ClientInfo, state: Tensors) -> Artefact:
        return self.modules_of.publish(model, client, state)

    def publish_global(self, model: Any, clients: Sequence[ClientInfo], state: Tensors) -> Artefact | None:
        return None

    def restore(self, files: Mapping[str, bytes]) -> Tensors:
        return self.modules_of.restore(files)
