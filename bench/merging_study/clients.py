"""Every style's client, trained alone by the product's own client code; who is left out is decided afterwards.

A client's training does not depend on the others (it is one-shot), so one LoRA a style serves every left-out style.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.torch import load_file, save_file

from adapters_store.paths import PROJECT_ROOT
from train.data import ClientData, Example, build
from train.federation.client import Site
from train.merging.adapter import Adapter, read_adapter
from train.methods import build_method
from train.methods.contract import ClientInfo, Turn
from train.models.clip import ResidentClip
from train.models.resident import load_resident
from train.run.config import RunConfig
from train.tensors import Tensors

STYLES: Final = ("sketch", "cartoon", "paint", "pixel", "stipple", "hatch", "night", "inverted")
"""All that the base was not trained on."""
CLASSES: Final = 80
TEST: Final = 160
VALIDATION: Final = 80


@dataclass(frozen=True)
class Training:
    """How the clients of a seed train; ``poisoned``: the style whose client's labels are all wrong."""

    seed: int
    lr: float
    epochs: int = 10
    poisoned: str | None = None

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.seed}-{self.lr:g}-{self.epochs}" + (f"-{self.poisoned}" if self.poisoned else "")


def config(training: Training) -> RunConfig:
    """The federation of all styles."""
    values: dict[str, Any] = {
        "seed": training.seed,
        "method": {"name": "sap"},
        "base": {"path": str(PROJECT_ROOT / "bases/tiny/clip"), "zero_shot_template": "a photo of a {class}."},
        "data": {
            "name": "scenes",
            "clients": len(STYLES),
            "partition": "style",
            "styles": list(STYLES),
            "tasks": ["classify"],
            "classes_per_client": CLASSES,
            "few_shot": 2,
            "val_per_client": VALIDATION,
            "test_per_client": TEST,
        },
        "federation": {"rounds": 1},
        "client": {"local_epochs": training.epochs, "batch_size": 32, "lr": training.lr},
        "publish": {"enabled": False},
    }
    return RunConfig.model_validate(values)


@cache
def resident() -> ResidentClip:
    """The base, once a process."""
    model = load_resident(config(Training(0, 1e-3)).base, "clip")
    assert isinstance(model, ResidentClip)
    return model


@cache
def data(seed: int) -> dict[str, ClientData]:
    """Every style's client."""
    clients = {client.train[0].style: client for client in build(config(Training(seed, 1e-3)).data, seed)}
    assert set(clients) == set(STYLES)
    return clients


def scale() -> float:
    """α/r of the clients' LoRAs."""
    method: Any = build_method(config(Training(0, 1e-3)).method)
    return float(method.options.lora.scale)


def adapters(training: Training, kept: Path) -> dict[str, Adapter]:
    """Every style's LoRA, trained where the folder ``kept`` does not have it yet; the poisoned style's alone."""
    return {style: read_adapter(tensors, scale()) for style, tensors in uploads(training, kept).items()}


def uploads(training: Training, kept: Path) -> dict[str, Tensors]:
    """The same as the tensors that the clients send."""
    found = {}
    for style in (training.poisoned,) if training.poisoned else STYLES:
        path = kept / f"{training.name}-{style}.safetensors"
        if not path.exists():
            kept.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            save_file(_train(training, style), partial)
            partial.rename(path)
        found[style] = load_file(path)
    return found


def _train(training: Training, style: str) -> Tensors:
    values, client = config(training), data(training.seed)[style]
    if training.poisoned:
        client = replace(client, train=mislabelled(client.train, client.class_names, training.seed))
    model, method, info = resident(), build_method(values.method), ClientInfo.of(client)
    site = Site(model, method, {client.id: client}, {client.id: info}, values.client, training.seed)
    parcel = method.parcel(method.initial(model, [info], training.seed), info)
    return site.train(client.id, Turn("train", 1), parcel, None, timeout=3600).upload


def mislabelled(examples: Sequence[Example], class_names: Sequence[str], seed: int) -> tuple[Example, ...]:
    """The examples with the classes renamed in a cycle of random order: as consistent as before, and all wrong."""
    order = np.random.default_rng((seed, 5)).permutation(len(class_names))
    wrong = dict(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))
    return tuple(replace(e, label=wrong[e.label], answer=class_names[wrong[e.label]]) for e in examples)
