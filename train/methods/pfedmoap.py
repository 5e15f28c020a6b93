"""pFedMoAP (Luo et al., ICLR 2025): prompts of other clients as experts, mixed by a gate that never leaves the client.

Uploaded is a client's prompt alone. The server averages the prompts and keeps the last one of every client that took
part; a client is sent the average, from which it trains on, and the prompts of others nearest to its own last one. The
first time a client takes part it trains a prompt alone. docs/methods.md#pfedmoap.

With ``experts: 0`` a client has the gate over its own prompt alone, from its first turn on, and nothing is sent either
way: the control that tells what the gate itself is worth. Attention over one expert is 1, so that the gate is a linear
map between image and text features: λ τ x·t + τ ⟨pool(x), W_o (W_v pool(t) + b_v) + b_o⟩.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from adapters_store.personal.gate import initial_gate
from adapters_store.versions.manifest import Trust
from train.methods.contract import AveragingOptions, ClientInfo, ServerContext, Turn, Update
from train.methods.promptfl import PROMPT, PromptFamilyOptions, PromptFL
from train.models.clip import SUFFIX_TEMPLATE, MixtureClassifier, ResidentClip
from train.models.interfaces import Artefact, Personal
from train.tensors import Schema, Tensors, derive_seed, schema_of, to_bytes

POOL = "pool."
"""Server state: the last prompt of each client that took part."""
DRAW = "draw"
"""Server state: the seed of the next random selection."""

ALONE = Trust(
    serving_host=["personal prompt vectors", "gate", "class names"],
    client_only=["images", "labels", "image features", "optimiser state", "prompt vectors and gate in training"],
)
"""Where nothing is sent."""


class PFedMoAPOptions(AveragingOptions, PromptFamilyOptions):
    name: Literal["pfedmoap"] = "pfedmoap"
    experts: int = Field(
        9,
        ge=0,
        description="K_e, non-local prompts sent to a client; fewer where fewer exist; 0: the gate over the own prompt"
        " alone, and nothing is uploaded or sent",
    )
    selection: Literal["nearest", "random"] = Field("nearest", description="which ones: nearest to its own, or any")
    mixing: float = Field(0.5, ge=0, description="λ, weight of the own prompt's logits beside the gate's")
    gate_lr: float = Field(0.01, gt=0, description="constant learning rate of the gate")

    def misfits(self) -> Iterator[str]:
        if self.experts == 0 and self.aggregator.rule != "mean":
            yield f"aggregator.rule: found {self.aggregator.rule!r}, but experts 0 sends nothing: 'mean' is allowed"


class PFedMoAP(PromptFL):
    name: ClassVar[str] = "pfedmoap"
    fine_tunes: ClassVar[bool] = False
    options: PFedMoAPOptions
    trust: ClassVar[Trust] = Trust(
        aggregator=["prompt vectors after each round", "number of training examples", "class names"],
        serving_host=["personal prompt vectors", "gate", "non-local prompt vectors, unnamed", "class names"],
        client_only=["images", "labels", "image features", "optimiser state", "gate in training"],
    )

    def __init__(self, options: PFedMoAPOptions) -> None:
        super().__init__(options)
        self.alone = options.experts == 0
        if self.alone:
            self.trust = ALONE  # type: ignore[misc]  # of this configuration

    def initial(self, model: ResidentClip, clients: Sequence[ClientInfo], seed: int) -> Tensors:
        return {**super().initial(model, clients, seed), DRAW: torch.tensor(derive_seed(seed, "select", 0))}

    def enrol(self, model: ResidentClip, client: ClientInfo, seed: int) -> Tensors:
        """The client's own gate, not trained yet; where nothing is sent, the prompt that all start from too."""
        width = model.clip.joint_width
        gate = initial_gate(width, torch.Generator().manual_seed(derive_seed(seed, "gate", client.id)))
        own = {f"gate.{name}": tensor for name, tensor in gate.items()}
        return {**own, **super().initial(model, [client], seed)} if self.alone else own

    def build(self, model: ResidentClip, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        if "others" not in state:
            return super().build(model, client, state, turn)
        return MixtureClassifier(model, client.class_names, state, self.options.mixing)

    def rate(self, name: str, scheduled: float) -> float:
        return self.options.gate_lr if name.startswith("gate.") else scheduled

    def upload(self, state: Tensors, turn: Turn) -> Tensors:
        return {} if self.alone else {"prompt": state["prompt"]}

    def expected(self, state: Tensors, client: ClientInfo, turn: Turn) -> Schema:
        return {} if self.alone else schema_of({"prompt": state["prompt"]})

    def combine(self, state: Tensors, updates: Sequence[Update], context: ServerContext) -> Tensors:
        """The mean prompt, and the pool with these clients' prompts in it."""
        if self.alone:
            return state
        sent = {POOL + update.client: update.tensors["prompt"] for update in updates}
        draw = torch.tensor(derive_seed(context.seed, "select", context.round))
        return {**state, **sent, **super().combine(state, updates, context), DRAW: draw}

    def parcel(self, state: Tensors, client: ClientInfo) -> Tensors:
        """The mean prompt and, once the client has taken part, up to K_e prompts of others: "others" (E, M, W)."""
        if self.alone:
            return {}
        own = state.get(POOL + client.id)
        pool = {name: state[name] for name in sorted(state) if name.startswith(POOL) and name != POOL + client.id}
        if own is None or not pool:
            return {"prompt": state["prompt"]}
        if self.options.selection == "nearest":
            chosen = nearest(own, pool)[: self.options.experts]
        else:
            random = torch.Generator().manual_seed(derive_seed(int(state[DRAW]), client.id))
            order = torch.randperm(len(pool), generator=random)[: self.options.experts]
            chosen = [list(pool)[i] for i in order]
        return {"prompt": state["prompt"], "others": torch.stack([pool[name] for name in chosen])}

    def absorb(self, state: Tensors, parcel: Tensors, turn: Turn) -> Tensors:
        """A client keeps what it trained last as its personal version; who never took part keeps what it is sent."""
        if turn.kind == "personal" and "prompt" in state:
            return state
        if self.alone:
            return {**state, "others": state["prompt"].new_zeros(0, *state["prompt"].shape)}
        return {**{name: tensor for name, tensor in state.items() if name != "others"}, **parcel}

    def publish(self, model: ResidentClip, client: ClientInfo, state: Tensors) -> Artefact:
        """Prompt, non-local prompts, λ and gate; the prompt alone where the gate is off."""
        kept = {"prompt": state["prompt"]}
        if "others" in state:
            gate = {name: tensor for name, tensor in state.items() if name.startswith("gate.")}
            kept |= {"mixing": torch.tensor(self.options.mixing), **gate}
            kept |= {} if self.alone else {"others": state["others"]}  # a store takes no empty tensor
        return Artefact("personal", {PROMPT: to_bytes(kept)}, SUFFIX_TEMPLATE, client.class_names)

    def restore(self, files: Mapping[str, bytes]) -> Tensors:
        state = super().restore(files)
        none = {"others": state["prompt"].new_zeros(0, *state["prompt"].shape)} if "mixing" in state else {}
        return {**none, **state}

    def publish_global(self, model: ResidentClip, clients: Sequence[ClientInfo], state: Tensors) -> Artefact | None:
        """The mean prompt; nothing where none was made."""
        if self.alone:
            return None
        return super().publish_global(model, clients, {"prompt": state["prompt"]})


def nearest(own: Tensor, pool: Mapping[str, Tensor]) -> list[Any]:
    """The pool's names by ‖v − own‖₂ of the flattened prompts; equally far ones in the pool's order."""
    distances = {name: float((prompt.double() - own.double()).norm()) for name, prompt in pool.items()}
    return sorted(pool, key=lambda name: distances[name])
