"""Random versions to be served: a small LoRA, and a connector as Pilot publishes one."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save
from torch import Tensor

from adapters_store.bases.frozen import base_id
from adapters_store.bases.lora_fit import linear_shapes
from adapters_store.personal.connector import CLIENT, CONNECTOR, PARTS, ROUTER
from adapters_store.store import Store
from adapters_store.versions.manifest import BaseRef, Manifest
from serve.versions.subjects import of_base

TARGETS: Final = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
RANK: Final = 8
LORA_SIZE: Final = 0.01
"""Standard deviation of A and B: what they cost is measured, and the base's long answers are kept."""
TASKS: Final = 5


@dataclass(frozen=True)
class Widths:
    """Of a base: the vision tower's features, the language model's tokens, the hidden layers of connectors."""

    vision: int
    token: int
    hidden: int


def widths(base: Path) -> Widths:
    """The widths of the LLaVA in that folder; connectors are as wide as its projector."""
    config = json.loads((base / "config.json").read_text())
    token = config["text_config"]["hidden_size"]
    return Widths(config["vision_config"]["hidden_size"], token, token)


def endless(base: Path, folder: Path) -> Path:
    """A copy of the base in ``folder`` that never ends an answer by itself, so that all answers are of one length."""
    shutil.copytree(base, folder)
    for name, field, other in (
        ("tokenizer_config.json", "eos_token", "pad_token"),
        ("config.json", "eos_token_id", "pad_token_id"),
        ("generation_config.json", "eos_token_id", "pad_token_id"),
    ):
        config = json.loads((folder / name).read_text())
        for part in (config, config.get("text_config", {})):
            if field in part:
                part[field] = part[other]
        (folder / name).write_text(json.dumps(config))
    return folder


def connector_tensors(client: int, size: Widths, tasks: int = TASKS) -> dict[str, Tensor]:
    """A connector of J = 2·tasks adapters. What clients received of a task is the same for all of them."""
    own = torch.Generator().manual_seed(1000 + client)
    tensors = {ROUTER: 0.1 * torch.randn(tasks, size.vision, generator=own), **_mlp(CLIENT, size, own)}
    for expert in range(tasks):
        received = torch.Generator().manual_seed((client + expert) % tasks)
        tensors |= _mlp(f"experts.{expert}.task", size, received if expert else own)
        tensors |= _mlp(f"experts.{expert}.cross", size, own) if expert else {}
    return tensors


def publish(store: Store, base: Path, clients: Sequence[str]) -> dict[str, Path]:
    """Publishes and activates a version for each of the clients; its folder by ``client@version``."""
    identity = base_id(base, "nf4")
    subject, size, shapes = of_base(base, identity, base), widths(base), linear_shapes(base)
    folders = {}
    for number, client in enumerate(clients):
        manifest = Manifest(
            client=client,
            role="personal",
            family="mllm",
            method="pilot",
            base=BaseRef(id=identity, name=str(base), quantization="nf4"),
            rank=RANK,
            target_modules=TARGETS,
            image_transform=subject.image_transform,
            prompt_template=subject.prompt_template,
        )
        files = _lora(number, shapes) | {CONNECTOR: save(connector_tensors(number, size))}
        version = store.publish(manifest, files, {}, activate=True)
        folders[f"{client}@{version}"] = (store.root / client / version).resolve()
    return folders


def _lora(client: int, shapes: dict[str, tuple[int, int]]) -> dict[str, bytes]:
    random = torch.Generator().manual_seed(client)
    tensors = {}
    for module, (rows, columns) in shapes.items():
        name = f"base_model.model.model.language_model.{module}"
        tensors[f"{name}.lora_A.weight"] = LORA_SIZE * torch.randn(RANK, columns, generator=random)
        tensors[f"{name}.lora_B.weight"] = LORA_SIZE * torch.randn(rows, RANK, generator=random)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 2 * RANK, "bias": "none", "target_modules": TARGETS}
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": save(tensors)}


def _mlp(name: str, size: Widths, random: torch.Generator) -> dict[str, Tensor]:
    shapes = ((size.hidden, size.vision), (size.hidden,), (size.token, size.hidden), (size.token,))
    scales = (size.vision**-0.5, 0.1, size.hidden**-0.5, 0.1)
    made = [scale * torch.randn(shape, generator=random) for shape, scale in zip(shapes, scales, strict=True)]
    return {f"{name}.{part}": tensor for part, tensor in zip(PARTS, made, strict=True)}
