"""PromptFL (Guo et al. 2023): CoOp's shared prompt trained on every client and averaged, v = Σ p_k v_k."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from adapters_store.personal.prompt import prompt_width, word_prompt
from adapters_store.versions.manifest import Trust
from train.methods.contract import AveragingOptions, ClientInfo, Method, MethodOptions, Turn
from train.models.clip import SUFFIX_TEMPLATE, PromptClassifier, ResidentClip
from train.models.interfaces import Artefact, Personal
from train.tensors import Tensors, from_bytes, generator, to_bytes

PROMPT = "prompt.safetensors"


class PromptOptions(BaseModel):
    """The learned vectors before every class name."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    length: int = Field(16, ge=1, description="M, the number of vectors; ignored where they start from words")
    words: str | None = Field(None, description="start from these words' embeddings instead of N(0, 0.02²)")


class PromptFamilyOptions(MethodOptions):
    """Options of every method that trains a prompt."""

    prompt: PromptOptions = Field(PromptOptions(), description="the prompt every client trains")


class PromptFLOptions(AveragingOptions, PromptFamilyOptions):
    name: Literal["promptfl"] = "promptfl"


class PromptFL(Method[ResidentClip]):
    name: ClassVar[str] = "promptfl"
    family: Literal["mllm", "clip"] = "clip"
    options: PromptFamilyOptions
    trust: ClassVar[Trust] = Trust(
        aggregator=["prompt vectors after each round", "number of training examples", "class names"],
        serving_host=["personal prompt vectors", "class names"],
        client_only=["images", "labels", "image features", "optimiser state"],
    )

    def initial(self, model: ResidentClip, clients: Sequence[ClientInfo], seed: int) -> Tensors:
        prompt = self.options.prompt
        if prompt.words is not None:
            return {"prompt": word_prompt(model.clip, prompt.words).cpu()}
        shape = (prompt.length, prompt_width(model.clip))
        return {"prompt": 0.02 * torch.randn(shape, generator=generator(seed, "prompt"))}

    def build(self, model: ResidentClip, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        return PromptClassifier(model, client.class_names, state["prompt"])

    def publish(self, model: ResidentClip, client: ClientInfo, state: Tensors) -> Artefact:
        return Artefact("personal", {PROMPT: to_bytes(state)}, SUFFIX_TEMPLATE, client.class_names)

    def publish_global(self, model: ResidentClip, clients: Sequence[ClientInfo], state: Tensors) -> Artefact | None:
        every_class = dict.fromkeys(name for client in clients for name in client.class_names)
        return Artefact("global", {PROMPT: to_bytes(state)}, SUFFIX_TEMPLATE, tuple(every_class))

    def restore(self, files: Mapping[str, bytes]) -> Tensors:
        return from_bytes(files[PROMPT])
