"""FedIT: FedAvg of LoRA factors for instruction tuning (Zhang et al. 2023, "Towards Building the Federated GPT").

Every client trains A and B on the frozen 4-bit language model and uploads both; the server averages each factor,
Ā = Σ p_k A_k and B̄ = Σ p_k B_k. The mean of products is not the product of means: ``diagnose`` says how far off.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from adapters_store.manifest import Trust
from train.lowrank import relative_error, stacked
from train.methods.averaging import shares
from train.methods.base import (
    Artefact,
    ClientInfo,
    Method,
    MethodOptions,
    Personal,
    Turn,
    Update,
)
from train.models.lora import WEIGHTS, LoraOptions, LoraPersonal, adapt_, initial_lora, lora_files
from train.models.mllm import Mllm
from train.tensors import Tensors, from_bytes


class FedITOptions(MethodOptions):
    name: Literal["fedit"] = "fedit"
    lora: LoraOptions = Field(LoraOptions(), description="the adapters every client trains")


class FedIT(Method[Mllm]):
    name: ClassVar[str] = "fedit"
    family: ClassVar[Literal["mllm", "clip"]] = "mllm"
    options: FedITOptions
    trust: ClassVar[Trust] = Trust(
        aggregator=["LoRA factors A and B after each round", "number of training examples"],
        serving_host=["personal LoRA factors A and B"],
        client_only=["images", "questions and answers", "optimiser state"],
    )

    def initial(self, model: Mllm, clients: Sequence[ClientInfo], seed: int) -> Tensors:
        return initial_lora(adapt_(model, self.options.lora), seed)

    def build(self, model: Mllm, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        return LoraPersonal(model, self.options.lora, state)

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
        return self._artefact("personal", model, state)

    def publish_global(self, model: Mllm, clients: Sequence[ClientInfo], state: Tensors) -> Artefact:
        return self._artefact("global", model, state)

    def restore(self, files: Mapping[str, bytes]) -> Tensors:
        return from_bytes(files[WEIGHTS])

    def _artefact(self, role: Literal["personal", "global"], model: Mllm, state: Tensors) -> Artefact:
        lora = self.options.lora
        return Artefact(
            role=role,
            files=lora_files(lora, model.base.name, state),
            prompt_template=model.prompt_template,
            rank=lora.rank,
            target_modules=lora.target_modules,
        )
