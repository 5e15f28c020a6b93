"""One-shot federation: every client trains a LoRA alone and uploads it once; the server merges them, which is global.

A client's own version is the LoRA that it trained; nothing is sent back to it. How the LoRAs are merged is what the
methods differ in (train/merging holds it as pure functions).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from adapters_store.versions.manifest import Trust
from train.data import Example
from train.data.anchors import AnchorOptions, Family, anchors
from train.merging.adapter import Adapter, Recompressed, read_adapter, write_adapter
from train.merging.means import exact_mean, recompress, total_norm
from train.methods.contract import ClientInfo, Method, MethodOptions, ServerContext, Turn, Update
from train.models.carriers import CARRIERS, CarriedLora
from train.models.interfaces import Artefact, Personal
from train.models.lora import WEIGHTS
from train.tensors import Tensors, from_bytes

MERGED, PART = "merged.", "took_part."
"""What names in the server's state begin with after the merge: those of the merged LoRA's tensors, and those of the
flags that say which clients' LoRAs are in it."""
ERROR = "recompression_error"
"""Name of ‖merge at its rank − merge‖_F / ‖merge‖_F among them."""


class OneShotOptions(MethodOptions):
    """Options of every one-shot method."""

    weighting: Literal["uniform"] = Field("uniform", description="p_k = 1/K")
    family: Family = Field("clip", description="clip: LoRA on the vision tower; mllm: on the LLaVA's language model")
    lora: CarriedLora = Field(CarriedLora(), description="the adapters every client trains")
    rank: int | None = Field(
        None, ge=1, le=512, description="rank of the published merge, the error is logged; by default the exact merge's"
    )
    anchors: AnchorOptions = Field(AnchorOptions(), description="the server's public image–text pairs")

    def misfits(self) -> Iterator[str]:
        allowed = CARRIERS[self.family].linears
        for name in self.lora.targets or ():
            if allowed and name not in allowed:
                yield f"lora.targets: found {name!r}, family {self.family} has {', '.join(allowed)}"
        if self.family == "clip" and self.anchors.tasks != ("caption",):
            yield f"anchors.tasks: found {list(self.anchors.tasks)}, family clip allows ['caption']"


class OneShot(Method[Any]):
    one_shot: ClassVar[bool] = True
    fine_tunes: ClassVar[bool] = False
    options: OneShotOptions
    trust: ClassVar[Trust] = Trust(
        aggregator=["LoRA factors A and B, once", "class names"],
        serving_host=["personal LoRA factors A and B", "class names"],
        client_only=["images", "labels, questions and answers", "optimiser state"],
    )

    def __init__(self, options: OneShotOptions) -> None:
        super().__init__(options)
        self.family = options.family
        self.carrier = CARRIERS[options.family](options.lora)

    def merge(self, model: Any, adapters: Sequence[Adapter], updates: Sequence[Update], seed: int) -> Adapter:
        """The server's merge of the updates' adapters, both in client order."""
        raise NotImplementedError

    def initial(self, model: Any, clients: Sequence[ClientInfo], seed: int) -> Tensors:
        self.anchors(seed)  # refuses what cannot be read before anything is trained
        return self.carrier.initial(model, seed)

    def anchors(self, seed: int) -> tuple[Example, ...]:
        """The server's public image–text pairs."""
        return anchors(self.options.anchors, self.options.family, seed)

    def build(self, model: Any, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        return self.carrier.build(model, client.class_names, state)

    def combine(self, state: Tensors, updates: Sequence[Update], context: ServerContext) -> Tensors:
        """The merge, in the scale of the clients' LoRAs."""
        scale = self.options.lora.scale
        adapters = [read_adapter(update.tensors, scale) for update in updates]
        merged = self.merge(context.model, adapters, updates, context.seed)
        if self.options.rank is not None and not isinstance(merged, Recompressed):
            merged = recompress(merged, self.options.rank)
        error = merged.error if isinstance(merged, Recompressed) else 0.0
        unscaled = write_adapter({module: (b / scale, a) for module, (b, a) in merged.items()})
        return {
            **{MERGED + name: tensor for name, tensor in unscaled.items()},
            **{PART + update.client: torch.ones(()) for update in updates},
            ERROR: torch.tensor(error),
        }

    def diagnose(self, state: Tensors, updates: Sequence[Update]) -> dict[str, float]:
        """``kept_norm``: ‖merge‖_F over that of the exact mean; ``rank`` of the merge, and what it leaves out."""
        scale = self.options.lora.scale
        merged = read_adapter(_merge_in(state), scale)
        mean = exact_mean([read_adapter(update.tensors, scale) for update in updates])
        rank = max(a.shape[0] for _, a in merged.values())
        norm = total_norm(mean)
        kept = total_norm(merged) / norm if norm else 0.0
        return {"kept_norm": kept, "rank": float(rank), ERROR: float(state[ERROR])}

    def parcel(self, state: Tensors, client: ClientInfo) -> Tensors:
        """The start for everybody; once there is a merge, nothing for whose LoRA is in it, the merge for others."""
        return {} if PART + client.id in state else _merge_in(state)

    def publish(self, model: Any, client: ClientInfo, state: Tensors) -> Artefact:
        return self.carrier.artefact("personal", model, client.class_names, state)

    def publish_global(self, model: Any, clients: Sequence[ClientInfo], state: Tensors) -> Artefact:
        every_class = tuple(dict.fromkeys(name for client in clients for name in client.class_names))
        return self.carrier.artefact("global", model, every_class, _merge_in(state))

    def restore(self, files: Mapping[str, bytes]) -> Tensors:
        return from_bytes(files[WEIGHTS])


def _merge_in(state: Mapping[str, Tensor]) -> Tensors:
    """The merge; before there is one, the start."""
    if ERROR not in state:
        return dict(state)
    return {name.removeprefix(MERGED): tensor for name, tensor in state.items() if name.startswith(MERGED)}
