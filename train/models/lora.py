"""LoRA (Hu et al. 2022) on the resident LLaVA's language model, as plain PEFT, swapped in place between clients."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from train.data import Example
from train.models.interfaces import Outputs
from train.models.mllm import Mllm, Turns
from train.tensors import Tensors, generator, to_bytes

if TYPE_CHECKING:  # slow to import, and a configuration is checked without it
    from peft import LoraConfig, PeftModel

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
PEFT_NAME = "default"  # PEFT's name for the first adapter
PREFIX = "base_model.model."  # of every module in PEFT's files


class LoraOptions(BaseModel):
    """Where the adapters sit and how large they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rank: int = Field(8, ge=1, le=512, description="r of the update BA")
    alpha: int = Field(16, ge=1, description="numerator of the scale s = α/r")
    targets: tuple[str, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        min_length=1,
        description="which linears of each language-model layer carry an adapter",
    )

    def peft_config(self, modules: Sequence[str] | None = None) -> "LoraConfig":
        """PEFT's own options, for these modules, or for those of any LLaVA.

        A pattern says which those are, since the vision tower has linears of the same names. It is never published.
        """
        from peft import LoraConfig

        pattern = rf".*language_model.*\.layers\.\d+\.(self_attn|mlp)\.({'|'.join(self.targets)})"
        targets = pattern if modules is None else list(modules)
        return LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules=targets, lora_dropout=0.0)


class LoraPersonal:
    """One client's LoRA in place on the base; with ``options`` None, the base alone."""

    def __init__(self, mllm: Mllm, options: LoraOptions | None, tensors: Tensors) -> None:
        self.mllm = mllm
        self.adapted = None if options is None else adapt_(mllm, options)
        self.parameters: Mapping[str, nn.Parameter] = {}
        if self.adapted is not None:
            self.parameters = lora_parameters(self.adapted)
            put_(self.parameters, tensors)

    def prepare(self, examples: Sequence[Example], augment: torch.Generator | None = None) -> Turns:
        return self.mllm.turns(examples, self.mllm.soft_tokens(examples))

    def outputs(self, prepared: Turns, rows: Sequence[int]) -> Outputs:
        return Outputs(self.mllm.answer_loss(prepared, rows, prepared.visual[list(rows)]), {})

    def answer(self, examples: Sequence[Example]) -> list[str]:
        with nullcontext() if self.adapted is not None else without_adapter(self.mllm):
            return self.mllm.answer(examples)


def adapt_(mllm: Mllm, options: LoraOptions) -> "PeftModel":
    """PEFT's wrap of the resident LLaVA with one adapter of this shape; the same wrap again for the same shape."""
    from peft import get_peft_model

    adapted = mllm.adapted
    if adapted is not None and mllm.adapter_shape == options:
        return adapted
    if adapted is not None:
        mllm.model = adapted.unload()
    adapted = get_peft_model(mllm.model, options.peft_config())
    mllm.adapted, mllm.adapter_shape = adapted, options
    return adapted


def without_adapter(mllm: Mllm) -> AbstractContextManager[Any]:
    """Inside it the resident LLaVA answers as the base does."""
    disabled: AbstractContextManager[Any] = mllm.adapted.disable_adapter() if mllm.adapted else nullcontext()
    return disabled


def lora_parameters(model: "PeftModel") -> dict[str, nn.Parameter]:
    """The adapter's parameters under the names their PEFT file has, in name order."""
    suffix = f".{PEFT_NAME}.weight"
    named = {name.replace(suffix, ".weight"): p for name, p in model.named_parameters() if name.endswith(suffix)}
    return dict(sorted(named.items()))


def is_lora(name: str) -> bool:
    """Whether a tensor of this name is a LoRA factor."""
    return ".lora_A." in name or ".lora_B." in name


def put_(parameters: Mapping[str, nn.Parameter], tensors: Tensors) -> None:
    """Copies the tensors into the parameters of the same names."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def initial_lora(model: "PeftModel", seed: int) -> Tensors:
    """PEFT's own start, from a seed: A uniform in ±1/√d_in, B zero, so that the adapted model is the base."""
    tensors: Tensors = {}
    for name, parameter in lora_parameters(model).items():
        bound = parameter.shape[1] ** -0.5 if ".lora_A." in name else 0.0
        uniform = torch.rand(parameter.shape, generator=generator(seed, "lora", name))
        tensors[name] = (2 * uniform - 1) * bound
    return tensors


def lora_files(options: LoraOptions, base_name: str, tensors: Tensors) -> dict[str, bytes]:
    """A PEFT folder's files, which ``PeftModel.from_pretrained`` loads."""
    modules = target_modules(tensors)
    config = options.peft_config(modules)
    config.base_model_name_or_path = base_name
    config.inference_mode = True
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        saved = json.loads((Path(folder) / CONFIG).read_bytes())
    saved["target_modules"] = modules  # PEFT writes a set of them, in another order in every process
    return {CONFIG: json.dumps(saved, indent=2, sort_keys=True).encode(), WEIGHTS: to_bytes(tensors)}


def target_modules(tensors: Tensors) -> list[str]:
    """The whole paths of the modules that these tensors adapt, in order: PEFT then selects these and no others."""
    return sorted({name.removeprefix(PREFIX).rpartition(".lora_")[0] for name in tensors})
