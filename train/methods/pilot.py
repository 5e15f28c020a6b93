"""Pilot (Xiong et al., AAAI 2025): federated instruction tuning of clients with different tasks. docs/methods.md#pilot.

Stage 1, in a client's first exchange, trains its task adapter ψ_t, client adapter ψ_s and LoRA. Stage 2, in every
later one, trains ψ_t, a cross-task adapter ψ_c beside each other task's received, frozen ψ_t, a router over them, and
LoRA; ψ_s is frozen. Uploaded are ψ_t and LoRA alone. The server makes a mean ψ_t for each task, and for each client a
mean of the LoRAs nearest to its own.

Client state: LoRA and connector under the names their files have, and ``stage``; the server's is described in
train/methods/pilot_server.py.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from adapters_store.personal.connector import CLIENT, ROUTER, TASK, Mlp
from adapters_store.versions.manifest import Trust
from train.aggregation.averaging import shares, weighted_mean
from train.methods.ata import adaptive_means
from train.methods.contract import ClientInfo, Method, MethodOptions, ServerContext, Turn, Update
from train.methods.pilot_losses import balance_loss, difference_loss, z_loss
from train.methods.pilot_server import (
    MEAN,
    as_expert,
    group,
    group_means,
    in_stage_1,
    in_stage_2,
    is_client,
    lora_part,
    own_part,
    put_under,
    tasks,
    under,
    uploaded_part,
)
from train.models.connected import ConnectedPersonal, mllm_artefact, named, read_mllm
from train.models.ct_clip import CtClipPersonal, clip_adapters
from train.models.interfaces import Artefact, Outputs, Personal
from train.models.lora import LoraOptions, adapt_, initial_lora, is_lora
from train.models.mllm import Mllm
from train.tensors import Schema, Tensors, generator, schema_of

STAGE = "stage"


class PilotOptions(MethodOptions):
    name: Literal["pilot"] = "pilot"
    lora: LoraOptions = Field(LoraOptions(), description="the adapters every client trains on the language model")
    connector_rate: float = Field(1.0, gt=0, description="learning rate of the connector, in units of client.lr")
    difference_weight: float = Field(0.1, ge=0, description="λ0 of L_d in stage 1")
    difference_loss: Literal["per_image", "reference"] = Field(
        "per_image",
        description="L_d of each image's tokens, or of the whole batch flattened (next to nothing at 7B size)",
    )
    balance_weight: float = Field(0.1, ge=0, description="λ1 of L_b, which spreads tokens over the experts, in stage 2")
    z_weight: float = Field(0.01, ge=0, description="λ2 of L_z, which keeps the router's logits small, in stage 2")
    cross_task: bool = Field(True, description="false: no experts of other tasks (without CT-MoA)")
    cross_task_init: Literal["zero", "projector"] = Field(
        "zero", description="last layer of a cross-task adapter: zero, or the projector's as in the reference code"
    )
    client_adapter_in_stage2: bool = Field(True, description="false: ψ_s is left out after stage 1")
    ct_clip: bool = Field(
        False, description="the same experts in the vision tower's MLPs too: for comparison, it cannot be published"
    )
    aggregation: Literal["ata", "mean"] = Field(
        "ata", description="LoRA sent to a client: adaptive, or everybody's mean"
    )
    top_m: int = Field(3, ge=1, description="M, how many nearest clients' LoRAs a client's mean takes in")
    publish: Literal["trained", "aggregated"] = Field(
        "trained",
        description="a client's LoRA and task adapter: as it trained them last, or as the last round made them",
    )


class Pilot(Method[Mllm]):
    name: ClassVar[str] = "pilot"
    family: Literal["mllm", "clip"] = "mllm"
    fine_tunes: ClassVar[bool] = False
    options: PilotOptions
    trust: ClassVar[Trust] = Trust(
        aggregator=[
            "LoRA factors A and B and the task adapter after each exchange",
            "task",
            "number of training examples",
        ],
        serving_host=["personal LoRA", "personal connector: task, client and cross-task adapters, router"],
        client_only=["images", "questions and answers", "optimiser state", "client adapter and router in training"],
    )

    def initial(self, model: Mllm, clients: Sequence[ClientInfo], seed: int) -> Tensors:
        """Every task's adapter is the base's own."""
        adapters = own_part(
            {name: t for place, a in self._places(model).items() for name, t in named(place + TASK, a).items()}
        )
        lora = initial_lora(adapt_(model, self.options.lora), seed)
        state = group(MEAN, lora)
        for task in sorted({client.task for client in clients}):
            state |= group(f"task/{task}/", adapters)
        return state

    def enrol(self, model: Mllm, client: ClientInfo, seed: int) -> Tensors:
        """ψ_s: the projector's first layer and a small random last one. As two copies of the projector, ψ_t and ψ_s
        would stay equal for ever: the loss is symmetric in them."""
        random = generator(seed, "client adapter", client.id)
        state: Tensors = {}
        for place, adapter in self._places(model).items():
            small = 1e-3 * torch.randn(adapter.weight_2.shape, generator=random)
            last = small, torch.zeros_like(adapter.bias_2)
            state |= named(place + CLIENT, Mlp(adapter.weight_1, adapter.bias_1, *last))
        return state

    def exchanges(self, client: ClientInfo, round: int, first: bool) -> int:
        return 2 if first else 1

    def build(self, model: Mllm, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        personal = CtClipPersonal if self.options.ct_clip else ConnectedPersonal
        if turn is None or turn.kind == "personal":
            return personal(model, self.options.lora, state)
        first = int(state[STAGE]) == 1
        held = state if first else {**self._mixing(model, state), **state}
        moves = in_stage_1 if first else in_stage_2
        return personal(model, self.options.lora, held, [name for name in held if moves(name)], apart=first)

    def _places(self, model: Mllm) -> dict[str, Mlp]:
        """Where a connector is, as a prefix of its tensors' names, and what the base has there."""
        inside = clip_adapters(model) if self.options.ct_clip else {}
        return {"": model.projector_adapter(), **inside}

    def _mixing(self, model: Mllm, state: Tensors) -> Tensors:
        """What a client adds in stage 2, untrained: adapters that change nothing yet (by default), and a router that
        mixes all experts alike."""
        experts = len([name for name in state if name.startswith("experts.") and name.endswith(".task.linear_1.bias")])
        added: Tensors = {}
        for place, adapter in self._places(model).items() if experts > 1 else ():
            start = adapter
            if self.options.cross_task_init == "zero":
                last = torch.zeros_like(adapter.weight_2), torch.zeros_like(adapter.bias_2)
                start = Mlp(adapter.weight_1, adapter.bias_1, *last)
            for i in range(1, experts):
                added |= named(f"{place}experts.{i}.cross", start)
            added[place + ROUTER] = torch.zeros(experts, adapter.weight_1.shape[1])
        return added

    def rate(self, name: str, scheduled: float) -> float:
        return scheduled if is_lora(name) else scheduled * self.options.connector_rate

    def loss(self, outputs: Outputs, turn: Turn) -> Tensor:
        """CE + λ0 L_d in stage 1; CE + λ1 L_b + λ2 L_z where a router mixes experts."""
        options, extras = self.options, outputs.extras
        if "client" in extras:
            difference = difference_loss(extras["task"], extras["client"], options.difference_loss)
            return outputs.loss + options.difference_weight * difference
        if extras["logits"].shape[-1] == 1:
            return outputs.loss
        balance = balance_loss(extras["probabilities"])
        return outputs.loss + options.balance_weight * balance + options.z_weight * z_loss(extras["logits"])

    def upload(self, state: Tensors, turn: Turn) -> Tensors:
        """LoRA and the client's own task adapter."""
        return uploaded_part(state)

    def expected(self, state: Tensors, client: ClientInfo, turn: Turn) -> Schema:
        return schema_of({**under(state, MEAN), **as_expert(0, under(state, f"task/{client.task}/"))})

    def combine(self, state: Tensors, updates: Sequence[Update], context: ServerContext) -> Tensors:
        """Every task's mean adapter, the mean LoRA, and a LoRA for each client that sent one."""
        options = self.options
        new = group_means(state, updates, context, options.weighting)
        factors, examples = [lora_part(u.tensors) for u in updates], [u.examples for u in updates]
        if options.aggregation == "ata":
            means = adaptive_means(factors, examples, options.top_m, options.lora.alpha / options.lora.rank)
        else:
            means = [weighted_mean(factors, shares(examples, options.weighting)) for _ in updates]  # no shared memory
        for update, mean in zip(updates, means, strict=True):
            new |= put_under(f"lora/{update.client}/", mean)
        return new

    def parcel(self, state: Tensors, client: ClientInfo) -> Tensors:
        """The client's LoRA (a newcomer: the mean), its task's adapter; once it took part, the other tasks' too."""
        own = under(state, f"lora/{client.id}/")
        parcel = {**(own or under(state, MEAN)), **as_expert(0, under(state, f"task/{client.task}/"))}
        if own and self.options.cross_task:
            others = (task for task in tasks(state) if task != client.task)
            for i, task in enumerate(others, start=1):
                parcel |= as_expert(i, under(state, f"task/{task}/"))
        return parcel

    def absorb(self, state: Tensors, parcel: Tensors, turn: Turn) -> Tensors:
        """Keeps what is private. A client that never trained is served what it is sent, with no adapter of its own."""
        if turn.kind == "personal":
            if STAGE not in state:
                return {name: t for name, t in {**state, **parcel}.items() if not is_client(name)}
            return {**state, **uploaded_part(parcel)} if self.options.publish == "aggregated" else state
        if STAGE not in state:
            return {**state, **uploaded_part(parcel), STAGE: torch.tensor(1)}
        kept = state
        if not self.options.client_adapter_in_stage2:
            kept = {name: t for name, t in state.items() if not is_client(name)}
        return {**kept, **parcel, STAGE: torch.tensor(2)}

    def publish(self, model: Mllm, client: ClientInfo, state: Tensors) -> Artefact:
        return mllm_artefact("personal", model, self.options.lora, state)

    def publish_global(self, model: Mllm, clients: Sequence[ClientInfo], state: Tensors) -> Artefact:
        """The mean LoRA, and all tasks' adapters mixed alike: for clients that never trained, on any task."""
        shared = under(state, MEAN)
        for i, task in enumerate(tasks(state)):
            shared |= as_expert(i, under(state, f"task/{task}/"))
        return mllm_artefact("global", model, self.options.lora, shared)

    def restore(self, files: Mapping[str, bytes]) -> Tensors:
        return read_mllm(files)
