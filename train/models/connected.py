"""LoRA on the language model and a trained connector in the projector's place: what Pilot and FedIT's variant train."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from adapters_store.personal.connector import CLIENT, CONNECTOR, PARTS, ROUTER, Mlp, mixture, read_connector, stack
from train.data import Example
from train.models.interfaces import Artefact, Outputs
from train.models.lora import WEIGHTS, LoraOptions, LoraPersonal, is_lora, lora_files, target_modules
from train.models.mllm import Mllm, Turns
from train.tensors import Tensors, from_bytes, to_bytes

INSIDE = "clip."
"""Begins the names of what stands inside the vision tower (train/models/ct_clip.py), which no gateway serves."""


class ConnectedPersonal(LoraPersonal):
    """One client's LoRA and connector in place on the base.

    ``moving``: names of the connector's tensors that are parameters; all others are used as they are, uncopied where
    the base is on the CPU. ``apart``: the task and client adapters' outputs are wanted by themselves (Pilot's stage 1).
    Outputs' extras: "task" and "client" (B, N, d) where apart, else "logits" and "probabilities" (B, N, T) of a router.
    """

    def __init__(
        self, mllm: Mllm, options: LoraOptions, tensors: Tensors, moving: Collection[str] = (), *, apart: bool = False
    ) -> None:
        super().__init__(mllm, options, tensors)
        held: dict[str, Tensor] = {
            name: nn.Parameter(tensor.clone().to(mllm.device)) if name in moving else tensor.to(mllm.device)
            for name, tensor in connector_part(tensors).items()
        }
        self.connector, self.apart = read_connector(held), apart
        trained = {name: tensor for name, tensor in held.items() if isinstance(tensor, nn.Parameter)}
        self.parameters = {**self.parameters, **trained}

    def prepare(self, examples: Sequence[Example], augment: Generator | None = None) -> Turns:
        return self.mllm.turns(examples, self.mllm.features(examples))

    def outputs(self, prepared: Turns, rows: Sequence[int]) -> Outputs:
        features = prepared.visual[list(rows)].to(self.mllm.device)
        soft, extras = self._connected(features)
        return Outputs(self.mllm.answer_loss(prepared, rows, soft), extras)

    def answer(self, examples: Sequence[Example]) -> list[str]:
        return self.mllm.answer(examples, self.see)

    @torch.no_grad()
    def see(self, examples: Sequence[Example]) -> Tensor:
        """(n, N, d) soft tokens of the examples' images."""
        soft: Tensor = self.connector(self.mllm.features(examples).to(self.mllm.device))
        return soft

    def _connected(self, features: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        connector = self.connector
        if self.apart:
            assert connector.client is not None
            task, client = connector.experts[0][0](features), connector.client(features)
            return task + client, {"task": task, "client": client}
        logits = connector.logits(features)
        probabilities = logits.softmax(-1)
        soft = mixture(stack(connector.adapters), connector.weights(probabilities), features)
        return soft, {"logits": logits, "probabilities": probabilities}


def connector_part(tensors: Mapping[str, Tensor]) -> Tensors:
    """Those of a state's tensors that make the connector, under the names that ``connector.safetensors`` has."""
    return {name: t for name, t in tensors.items() if name == ROUTER or name.startswith(("experts.", f"{CLIENT}."))}


def named(prefix: str, adapter: Mlp) -> Tensors:
    """The adapter's tensors as ``prefix.linear_1.weight`` and so on."""
    return {f"{prefix}.{part}": tensor for part, tensor in zip(PARTS, adapter, strict=True)}


def mllm_artefact(role: Literal["personal", "global"], model: Mllm, lora: LoraOptions, state: Tensors) -> Artefact:
    """The LoRA of this state as PEFT's files, and its connector's file where it has one."""
    factors = {name: tensor for name, tensor in state.items() if is_lora(name)}
    files = lora_files(lora, model.base.name, factors)
    connector = connector_part(state) | {name: t for name, t in state.items() if name.startswith(INSIDE)}
    return Artefact(
        role=role,
        files={**files, CONNECTOR: to_bytes(connector)} if connector else files,
        prompt_template=model.prompt_template,
        rank=lora.rank,
        target_modules=target_modules(factors),
    )


def read_mllm(files: Mapping[str, bytes]) -> Tensors:
    """The tensors in an artefact's files."""
    return {name: t for file in (WEIGHTS, CONNECTOR) if file in files for name, t in from_bytes(files[file]).items()}
