"""Versions to serve in tests: random LoRAs over the embedded LLaVA, random prompts and gates over the embedded CLIP."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save

from adapters_store.bases.frozen import QUANTISED, base_id
from adapters_store.paths import PROJECT_ROOT
from adapters_store.personal.connector import CONNECTOR, PARTS, ROUTER
from adapters_store.personal.gate import initial_gate
from adapters_store.store import Store
from adapters_store.versions.manifest import BaseRef, Manifest
from serve.versions.subjects import Subject, of_artefact, of_base

LLAVA = PROJECT_ROOT / "bases/tiny/llava"
CLIP = PROJECT_ROOT / "bases/tiny/clip"
TARGETS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
CLASSES = ["circle", "square", "triangle"]
PROMPT_VECTORS = 4
CLIP_CONFIG = json.loads((CLIP / "open_clip_config.json").read_text())
WIDTH = CLIP_CONFIG["model_cfg"]["text_cfg"]["width"]
FEATURES = CLIP_CONFIG["model_cfg"]["embed_dim"]
VISION, HIDDEN, TOKEN, TASKS = 192, 256, 256, 5  # of a Pilot federation over the embedded LLaVA
CONNECTOR_TERMS = VISION + HIDDEN + 2 * TASKS  # additions from a feature to a soft token: an adapter's, and of them

Tensors = dict[str, torch.Tensor]


@cache
def linear_shapes(base: Path = LLAVA) -> dict[str, tuple[int, int]]:
    """(out, in) of every linear a LoRA may change, under the name PEFT gives it."""
    shapes = {}
    for path in base.glob("*.safetensors"):
        with safe_open(path, framework="pt") as shard:
            for name in shard.keys():  # noqa: SIM118  a safetensors file is no mapping
                if QUANTISED.search(name):
                    module = name.removesuffix(".weight").replace("language_model.model.", "model.language_model.")
                    shapes[module] = tuple(shard.get_slice(name).get_shape())
    return shapes


def lora_files(seed: int, rank: int = 4, size: float = 0.22) -> dict[str, bytes]:
    """A PEFT folder with random A and B of standard deviation ``size`` on every linear: far from what the base says."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for module, (rows, columns) in linear_shapes().items():
        for side, shape in (("A", (rank, columns)), ("B", (rows, rank))):
            random = torch.randn(shape, generator=generator) * size
            tensors[f"base_model.model.{module}.lora_{side}.weight"] = random
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none", "target_modules": TARGETS}
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": save(tensors)}


def lora_manifest(client: str, rank: int = 4, **changed: Any) -> Manifest:
    """The manifest of a LoRA over the embedded LLaVA; ``changed`` replaces fields."""
    identity = base_id(LLAVA, "nf4")
    base = of_base(LLAVA, identity, LLAVA)
    fields: dict[str, Any] = {
        "client": client,
        "role": "global" if client == "global" else "personal",
        "family": "mllm",
        "method": "fedit",
        "base": BaseRef(id=identity, name="bases/tiny/llava", quantization="nf4"),
        "image_transform": base.image_transform,
        "prompt_template": base.prompt_template,
        "rank": rank,
        "target_modules": TARGETS,
    }
    return Manifest.model_validate(fields | changed)


def publish_lora(
    store: Store,
    client: str,
    seed: int,
    *,
    rank: int = 4,
    connector: Tensors | None = None,
    activate: bool = True,
) -> str:
    """Publishes a random LoRA, with that connector where one is given; the version."""
    files = lora_files(seed, rank)
    if connector is not None:
        files[CONNECTOR] = save(connector)
    return store.publish(lora_manifest(client, rank), files, {"seed": seed}, activate=activate)


def subject_of(store: Store, client: str, version: str) -> Subject:
    """The version as the gateway sees it, but that it is read from the store's own folder."""
    artefact = store.artefact(client, version)
    return of_artefact(artefact, artefact.path)


def mlp_tensors(name: str, seed: int) -> Tensors:
    """A random adapter of the embedded LLaVA's widths, about as large as its projector's tokens."""
    generator = _random(seed)
    shapes = ((HIDDEN, VISION), (HIDDEN,), (TOKEN, HIDDEN), (TOKEN,))
    scales = (VISION**-0.5, 0.1, HIDDEN**-0.5, 0.1)
    random = [scale * torch.randn(shape, generator=generator) for shape, scale in zip(shapes, scales, strict=True)]
    return {f"{name}.{part}": tensor for part, tensor in zip(PARTS, random, strict=True)}


def connector_tensors(seed: int, task: int = 0, tasks: int = TASKS) -> Tensors:
    """A random connector as Pilot publishes it: what it received of the other tasks is the same in all of that task."""
    tensors = mlp_tensors("client", 1000 * seed)
    for expert in range(tasks):
        received = (task + expert) % tasks  # expert 0 is the client's own
        tensors |= mlp_tensors(f"experts.{expert}.task", received if expert else 1000 * seed + 1)
        if expert:
            tensors |= mlp_tensors(f"experts.{expert}.cross", 1000 * seed + 1 + expert)
    return tensors | {ROUTER: 0.1 * torch.randn(tasks, VISION, generator=_random(1000 * seed + 999))}


def prompt_tensors(seed: int) -> Tensors:
    """A random prompt for the embedded CLIP, as PromptFL publishes it."""
    return {"prompt": 0.02 * torch.randn(PROMPT_VECTORS, WIDTH, generator=_random(seed))}


def gated_tensors(seed: int, others: int = 3) -> Tensors:
    """A random prompt, prompts of others, λ and a gate that weighs them unevenly, as pFedMoAP publishes them."""
    generator = _random(seed)
    gate = {
        f"gate.{name}": 3 * tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in initial_gate(FEATURES, generator).items()
    }
    prompts = 0.02 * torch.randn(others, PROMPT_VECTORS, WIDTH, generator=generator)
    return {**prompt_tensors(seed), "others": prompts, "mixing": torch.tensor(0.5), **gate}


def memory_tensors(seed: int, features: torch.Tensor, labels: torch.Tensor) -> Tensors:
    """A random prompt and a memory of these features (n, D) with their labels (n,), as pFedPrompt publishes them."""
    memory = {"memory.features": features, "memory.labels": labels, "memory.weights": torch.tensor([2.0, 5.5])}
    return {**prompt_tensors(seed), **memory}


def publish_prompt(store: Store, client: str, seed: int) -> str:
    """Publishes a random prompt over the embedded CLIP; the version."""
    return publish_head(store, client, prompt_tensors(seed), report={"seed": seed})


def publish_head(
    store: Store,
    client: str,
    tensors: Tensors,
    class_names: Sequence[str] = CLASSES,
    report: Mapping[str, Any] | None = None,
    **changed: Any,
) -> str:
    """Publishes these tensors as a classifier over the embedded CLIP; ``changed`` replaces fields of its manifest."""
    files = {"prompt.safetensors": save(tensors)}
    return store.publish(prompt_manifest(client, class_names, **changed), files, report or {}, activate=True)


def prompt_manifest(client: str, class_names: Sequence[str] = CLASSES, **changed: Any) -> Manifest:
    """The manifest of a classifier over the embedded CLIP; ``changed`` replaces fields."""
    transform = CLIP_CONFIG["preprocess_cfg"]
    fields: dict[str, Any] = {
        "family": "clip",
        "method": "promptfl",
        "base": BaseRef(id=base_id(CLIP, None), name="bases/tiny/clip"),
        "image_transform": {"size": 64, "mean": transform["mean"], "std": transform["std"]},
        "prompt_template": "{class}.",
        "class_names": list(class_names),
        "rank": None,
        "target_modules": None,
    }
    return lora_manifest(client, **(fields | changed))


def _random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
