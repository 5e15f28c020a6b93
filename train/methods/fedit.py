"""FedIT: FedAvg of LoRA factors for instruction tuning (Zhang et al. 2023, "Towards Building the Federated GPT").

Every client trains A and B on the frozen 4-bit language model and uploads both; the server averages each factor,
Ā = Σ p_k A_k and B̄ = Σ p_k B_k. The mean of products is not the product of means: ``diagnose`` says how far off.
With ``connector`` the projector is trained and averaged beside them, as Pilot's baseline has it.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from adapters_store.personal.connector import TASK
from adapters_store.versions.manifest import Trust
from train.aggregation.averaging import shares
from train.lowrank import relative_error, stacked
from train.methods.contract import AveragingOptions, ClientInfo, Method, Turn, Update
from train.models.connected import ConnectedPersonal, connector_part, mllm_artefact, named, read_mllm
from train.models.interfaces import Artefact, Personal
from train.models.lora import LoraOptions, LoraPersonal, adapt_, initial_lora
from train.models.mllm import Mllm
from train.tensors import Tensors


class FedITOptions(AveragingOptions):
    name: Literal["fedit"] = "fedit"
    lora: LoraOptions = Field(LoraOptions(), description="the adapters every client trains")
    connector: bool = Field(False, description="train and average the connector too, from the base's projector")


class FedIT(Method[Mllm]):
    name: ClassVar[str] = "fedit"
    family: Literal["mllm", "clip"] = "mllm"
    options: FedITOptions
    trust: ClassVar[Trust] = Trust(
        aggregator=["LoRA factors A and B after each round", "number of training examples"],
        serving_host=["personal LoRA factors A and B"],
        client_only=["images", "questions and answers", "optimiser state"],
    )

    def initial(self, model: Mllm, clients: Sequence[ClientInfo], seed: int) -> Tensors:
        lora = initial_lora(adapt_(model, self.options.lora), seed)
        return lora | named(TASK, model.projector_adapter()) if self.options.connector else lora

    def build(self, model: Mllm, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        connector = connector_part(state)
        if not connector:
            return LoraPersonal(model, self.options.lora, state)
        return ConnectedPersonal(model, self.options.lora, state, connector)

    def diagnose(self, state: Tensors, updates: Sequence[Update]) -> dict[str, float]:
        """``aggregation_error``: ‖B̄Ā − U‖_F / ‖U‖_F over all adapted layers, U = Σ p_k B_k A_k."""
        weights = shares([update.examples for update in updates], self.options.weighting)
        off, norm = 0.0, 0.0
        for a in (name for name in state if ".lora_A." in name):
            b = a.replace(".lora_A.", ".lora_B.")
            exact = stacked([(update.tensors[b], update.tensors[a]) for update in updates], weights)
            layer_off, layer_norm = relative_error((state[b], state[a]), exact)
            off, norm = off + layer_off**2, norm + layer_norm**2
        return {"aggregation_error": (off / norm) ** 0.5 if norm else 0.0}

    def publish(self, model: Mllm, client: ClientInfo, state: Tensors) -> Artefact:
        return mllm_artefact("personal", model, self.options.lora, state)

    def publish_global(self, model: Mllm, clients: Sequence[ClientInfo], state: Tensors) -> Artefact:
        return mllm_artefact("global", model, self.options.lora, state)

    def restore(self, files: Mapping[str, bytes]) -> Tensors:
        return read_mllm(files)
