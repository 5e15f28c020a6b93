"""LoRA on the vision tower of the resident CLIP: a client's training, and its files.

Letters: n examples, B rows of a batch, C classes, D joint embedding width, r rank.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from adapters_store.personal.heads import TextHead
from adapters_store.personal.prompt import CLASS_FIELD
from adapters_store.personal.vision_lora import (
    CONFIG,
    LINEARS,
    PREFIX,
    WEIGHTS,
    check_vision_fit,
    image_features,
    linear_weights,
    vision_deltas,
    weight_of,
)
from train.data import Example
from train.merging.adapter import A
from train.models.augment import crop_flip
from train.models.clip import ResidentClip
from train.models.feature_cache import GROUP
from train.models.interfaces import Artefact, Outputs
from train.models.lora import target_modules as module_names
from train.tensors import Tensors, generator, to_bytes

Target = Literal["in_proj", "out_proj", "c_fc", "c_proj"]
ENDS: dict[Target, str] = dict(zip(("in_proj", "out_proj", "c_fc", "c_proj"), LINEARS, strict=True))


class VisionLoraOptions(BaseModel):
    """Where the adapters sit and how large they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rank: int = Field(8, ge=1, le=512, description="r of the update BA")
    alpha: int = Field(16, ge=1, description="numerator of the scale s = α/r")
    targets: tuple[Target, ...] = Field(
        ("in_proj", "c_fc", "c_proj"),
        min_length=1,
        description="which linears of each block carry an adapter; PEFT up to 0.21.2 would add out_proj's twice",
    )

    @property
    def scale(self) -> float:
        """s = α/r."""
        return self.alpha / self.rank


@dataclass(frozen=True)
class Pixels:
    """Examples as the tower sees them; about 0.6 MB an image of side 224."""

    every: Tensor  # (n, 3, size, size)
    labels: Tensor  # (n,)

    def batch(self, rows: Sequence[int]) -> Tensor:
        return self.every[list(rows)]


@dataclass(frozen=True)
class AugmentedPixels:
    """Examples cropped and mirrored anew in every batch."""

    resident: ResidentClip
    examples: Sequence[Example]
    labels: Tensor  # (n,)
    random: torch.Generator

    def batch(self, rows: Sequence[int]) -> Tensor:
        size = self.resident.image_transform.size
        return self.resident.pixels(crop_flip([self.examples[row] for row in rows], size, self.random))


class VisionLoraPersonal:
    """One client's LoRA on the vision tower; classes are named by the zero-shot template, whose texts stay fixed."""

    def __init__(self, resident: ResidentClip, scale: float, class_names: Sequence[str], tensors: Tensors) -> None:
        """``tensors``: by PEFT's names; ``scale``: s. ValueError where they do not fit the tower."""
        self.resident, self.scale, self.class_names = resident, scale, class_names
        self.parameters: Mapping[str, nn.Parameter] = {
            name: nn.Parameter(t.to(resident.device).clone()) for name, t in sorted(tensors.items())
        }
        check_vision_fit(resident.clip, vision_deltas(self.parameters, scale))
        self.head = TextHead(resident.clip.logit_scale, zero_shot_text(resident, class_names))

    def prepare(self, examples: Sequence[Example], augment: torch.Generator | None = None) -> Pixels | AugmentedPixels:
        labels = torch.tensor([example.label for example in examples], device=self.resident.device)
        if augment is not None:
            return AugmentedPixels(self.resident, examples, labels, augment)
        return Pixels(self.resident.pixels([example.image for example in examples]), labels)

    def outputs(self, prepared: Pixels | AugmentedPixels, rows: Sequence[int]) -> Outputs:
        """Cross-entropy over these rows; ``extras["losses"]`` holds it for each row (B,)."""
        logits = self.head.logits(self.features(prepared.batch(rows)))
        losses = F.cross_entropy(logits, prepared.labels[list(rows)], reduction="none")
        return Outputs(losses.mean(), {"losses": losses})

    def features(self, pixels: Tensor) -> Tensor:
        """(n, D), differentiable in ``parameters``."""
        return image_features(self.resident.clip, vision_deltas(self.parameters, self.scale), pixels)

    @torch.no_grad()
    def logits(self, examples: Sequence[Example]) -> Tensor:
        """(n, C)"""
        groups = [examples[i : i + GROUP] for i in range(0, len(examples), GROUP)]
        pixels = (self.resident.pixels([example.image for example in group]) for group in groups)
        return torch.cat([self.head.logits(self.features(each)) for each in pixels])

    def answer(self, examples: Sequence[Example]) -> list[str]:
        return [self.class_names[i] for i in self.logits(examples).argmax(dim=-1).tolist()]


def zero_shot_text(resident: ResidentClip, class_names: Sequence[str]) -> Tensor:
    """(C, D) features of the classes in the resident's zero-shot template, computed once for each list of them."""
    texts = tuple(resident.zero_shot_template.replace(CLASS_FIELD, name) for name in class_names)
    features = resident.text_cache.get(texts)
    if features is None:
        features = resident.clip.text_features(texts)
        resident.text_cache.put(texts, features)
    return features


def initial_vision_lora(resident: ResidentClip, options: VisionLoraOptions, seed: int) -> Tensors:
    """PEFT's own start, from a seed: A uniform in ±1/√d_in, B zero, so that the adapted tower is the base's."""
    shapes = {name: weight.shape for name, weight in linear_weights(resident.clip).items()}
    blocks = len(shapes) // len(LINEARS)
    tensors: Tensors = {}
    for module in (f"{PREFIX}transformer.resblocks.{i}.{ENDS[t]}" for i in range(blocks) for t in options.targets):
        rows, columns = shapes[weight_of(module)]
        name = f"{module}.lora_A.weight"
        uniform = torch.rand(options.rank, columns, generator=generator(seed, "lora", name))
        tensors[name] = (2 * uniform - 1) * columns**-0.5
        tensors[f"{module}.lora_B.weight"] = torch.zeros(rows, options.rank)
    return dict(sorted(tensors.items()))


def vision_lora_artefact(
    role: Literal["personal", "global"],
    resident: ResidentClip,
    class_names: Sequence[str],
    tensors: Tensors,
    scale: float,
) -> Artefact:
    """A version that names these classes by the adapted tower and the resident's zero-shot template."""
    return Artefact(
        role=role,
        files=vision_lora_files(resident.base.name, tensors, scale),
        prompt_template=resident.zero_shot_template,
        class_names=tuple(class_names),
        rank=_rank(tensors),
        target_modules=target_modules(tensors),
    )


def vision_lora_files(base_name: str, tensors: Tensors, scale: float) -> dict[str, bytes]:
    """A PEFT folder's files, which ``PeftModel.from_pretrained`` loads on the open_clip model."""
    rank = _rank(tensors)
    alpha = scale * rank
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": base_name,
        "r": rank,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "target_modules": target_modules(tensors),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    return {CONFIG: json.dumps(config, indent=2, sort_keys=True).encode(), WEIGHTS: to_bytes(tensors)}


def target_modules(tensors: Tensors) -> list[str]:
    """The paths of the modules that PEFT adapts for these tensors; it has in_proj and out_proj in one, ``attn``."""
    return sorted({module.removesuffix(".base_layer.out_proj") for module in module_names(tensors)})


def _rank(tensors: Tensors) -> int:
    return next(len(tensor) for name, tensor in tensors.items() if name.endswith(A))
