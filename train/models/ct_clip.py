"""Pilot's ablation ``ct_clip``: the connector's construction in the place of every MLP of the vision tower as well.

It trains inside the tower, so no image feature can be kept from one step to the next. Tensors of layer l have the
connector's names under ``clip.<l>.``.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import Generator, Tensor, nn

from adapters_store.personal.connector import Connector, Mlp, read_connector
from adapters_store.pictures.pixels import to_pixels
from train.data import Example
from train.models.connected import ConnectedPersonal
from train.models.interfaces import Outputs
from train.models.lora import LoraOptions
from train.models.mllm import Mllm, Turns
from train.tensors import Tensors

LAYER: Final = re.compile(r"clip\.(\d+)\.(.+)")


def clip_adapters(mllm: Mllm) -> dict[str, Mlp]:
    """A copy of every MLP that the features depend on, by the prefix of its layer. ValueError where one is not GELU."""
    vision: Any = mllm.model.config.vision_config
    activation = vision.hidden_act
    if activation != "gelu":
        raise ValueError(f"method.ct_clip: the base's vision tower has {activation!r} where 'gelu' is needed")
    copied = {}
    for number, layer in enumerate(_layers(mllm)):
        first, second = layer.mlp.fc1, layer.mlp.fc2
        parts = (first.weight, first.bias, second.weight, second.bias)
        copied[f"clip.{number}."] = Mlp(*(part.detach().float().cpu().clone() for part in parts))
    return copied


class CtClipPersonal(ConnectedPersonal):
    """One client's LoRA, connector, and connectors in the vision tower; ``moving`` as there."""

    def __init__(
        self, mllm: Mllm, options: LoraOptions, tensors: Tensors, moving: Collection[str] = (), *, apart: bool = False
    ) -> None:
        super().__init__(mllm, options, tensors, moving, apart=apart)
        held = {
            name: nn.Parameter(tensor.clone().to(mllm.device)) if name in moving else tensor.to(mllm.device)
            for name, tensor in tensors.items()
            if LAYER.fullmatch(name)
        }
        self.layers = [read_connector(_under(held, f"clip.{i}.")) for i in range(len(_layers(mllm)))]
        self.parameters = {**self.parameters, **{n: t for n, t in held.items() if isinstance(t, nn.Parameter)}}

    def prepare(self, examples: Sequence[Example], augment: Generator | None = None) -> Turns:
        pixels = torch.stack([to_pixels(example.image, self.mllm.image_transform) for example in examples])
        return self.mllm.turns(examples, pixels, self.mllm.features(examples[:1]).shape[1])

    def outputs(self, prepared: Turns, rows: Sequence[int]) -> Outputs:
        soft, extras = self._connected(self._features(prepared.visual[list(rows)]))
        return Outputs(self.mllm.answer_loss(prepared, rows, soft), extras)

    @torch.no_grad()
    def see(self, examples: Sequence[Example]) -> Tensor:
        pixels = torch.stack([to_pixels(example.image, self.mllm.image_transform) for example in examples])
        soft: Tensor = self.connector(self._features(pixels))
        return soft

    def _features(self, pixels: Tensor) -> Tensor:
        with self._in_place():
            return self.mllm.projector_input(pixels.to(self.mllm.device))

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """The layers' MLPs compute these connectors."""
        mlps = [layer.mlp for layer in _layers(self.mllm)]
        for mlp, connector in zip(mlps, self.layers, strict=True):
            mlp.forward = partial(_forward, connector)
        try:
            yield
        finally:
            for mlp in mlps:
                del mlp.forward  # the class's own again


def _forward(connector: Connector, hidden: Tensor) -> Tensor:
    return connector(hidden)


def _layers(mllm: Mllm) -> list[Any]:
    """The tower's layers up to the last one that a feature is taken from."""
    layers = mllm.model.model.vision_tower.encoder.layers
    chosen = mllm.model.config.vision_feature_layer
    places = [chosen] if isinstance(chosen, int) else chosen
    return list(layers[: max(place % (len(layers) + 1) for place in places)])


def _under(tensors: Mapping[str, Tensor], prefix: str) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
