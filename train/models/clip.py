"""The resident CLIP, and the ways in which a client classifies with it.

Letters: n examples, B rows of a batch, D joint embedding width, C classes, E prompts, M prompt vectors, W text width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from adapters_store.bases.frozen import clip_base_id
from adapters_store.personal.clip import load_clip
from adapters_store.personal.heads import Head, MemoryHead, MixtureHead, TextHead, make_gate
from adapters_store.personal.prompt import PromptedText
from adapters_store.personal.tensor_cache import TensorCache
from adapters_store.pictures.pixels import to_pixels
from adapters_store.pictures.transform import ImageTransform
from adapters_store.versions.manifest import BaseRef
from train.data import Example
from train.models.augment import crop_flip
from train.models.feature_cache import MIB, FeatureCache
from train.models.interfaces import Outputs
from train.tensors import Tensors

SUFFIX_TEMPLATE = "{class}."  # docs/methods.md#coop: [SOS][v_1 … v_M][class name][.][EOS]


class Labelled(Protocol):
    """A client's examples, ready for training."""

    @property
    def labels(self) -> Tensor:
        """(n,)"""

    def features(self, rows: Sequence[int]) -> Tensor:
        """(B, D) L2-normalised image features of these rows."""


@dataclass(frozen=True)
class CachedFeatures:
    """Features computed once."""

    every: Tensor  # (n, D)
    labels: Tensor

    def features(self, rows: Sequence[int]) -> Tensor:
        return self.every[list(rows)]


@dataclass(frozen=True)
class AugmentedImages:
    """Images cropped and mirrored anew, and encoded, in every batch."""

    resident: "ResidentClip"
    examples: Sequence[Example]
    labels: Tensor
    random: torch.Generator

    def features(self, rows: Sequence[int]) -> Tensor:
        size = self.resident.image_transform.size
        changed = crop_flip([self.examples[row] for row in rows], size, self.random)
        return self.resident.clip.image_features(self.resident.pixels(changed))


class ResidentClip:
    """The resident base of family clip; everything in it is frozen."""

    family: Literal["mllm", "clip"] = "clip"

    def __init__(
        self,
        name: str,
        source: str | Path,
        device: torch.device | str = "cpu",
        *,
        pretrained: str | None = None,
        zero_shot_template: str = "a photo of a {class}.",
        cache_mib: float = 512.0,
        cache_folder: Path | None = None,
    ) -> None:
        """``source``: a local open_clip folder, or a model of open_clip whose ``pretrained`` is a tag or a file.

        ``name``: what manifests call it.
        """
        self.base = BaseRef(id=clip_base_id(source, pretrained), name=name, quantization=None)
        self.clip = load_clip(source, pretrained, device=device)
        self.image_transform: ImageTransform = self.clip.image_transform
        self.zero_shot_template = zero_shot_template
        self.device = torch.device(device)
        self.cache = FeatureCache(self.base.id, cache_mib, cache_folder, disk_mib=16 * cache_mib)
        self._texts: dict[tuple[str, ...], PromptedText] = {}
        self.text_cache = TensorCache(int(cache_mib * MIB))

    def pixels(self, images: Sequence[NDArray[np.uint8] | Image.Image]) -> Tensor:
        """(n, 3, size, size) what the encoder sees of these images."""
        return torch.stack([to_pixels(image, self.image_transform) for image in images]).to(self.device)

    def features(self, examples: Sequence[Example]) -> Tensor:
        """(n, D) normalised image features, computed once an image."""

        def encode(group: Sequence[Example]) -> Tensor:
            return self.clip.image_features(self.pixels([example.image for example in group]))

        return self.cache.features(examples, encode).to(self.device)

    def labelled(self, examples: Sequence[Example], augment: torch.Generator | None) -> Labelled:
        """The examples for training; with random numbers to ``augment`` by, nothing is cached."""
        labels = torch.tensor([example.label for example in examples], device=self.device)
        if augment is not None:
            return AugmentedImages(self, examples, labels, augment)
        return CachedFeatures(self.features(examples), labels)

    def texts(self, class_names: Sequence[str], length: int) -> PromptedText:
        """The texts that prompts of this length complete, tokenised once for each list of classes."""
        key = (str(length), *class_names)
        if key not in self._texts:
            self._texts[key] = PromptedText(self.clip, class_names, SUFFIX_TEMPLATE, length)
        return self._texts[key]

    @torch.no_grad()
    def frozen_text(self, prompts: Tensor, class_names: Sequence[str]) -> Tensor:
        """(E, C, D) features of prompts (E, M, W) that do not train: each is encoded once for all who were sent it."""
        texts, every = self.texts(class_names, prompts.shape[-2]), []
        for prompt in prompts:
            key = (prompt.cpu().numpy().tobytes(), tuple(class_names))
            features = self.text_cache.get(key)
            if features is None:
                features = texts.features(prompt.to(self.device))
                self.text_cache.put(key, features)
            every.append(features)
        return torch.stack(every) if every else texts.features(prompts.to(self.device))


class Classifier:
    """A head over the resident CLIP; what kind of head, a subclass says."""

    def __init__(self, resident: ResidentClip, class_names: Sequence[str]) -> None:
        self.resident, self.class_names = resident, class_names
        self.parameters: Mapping[str, nn.Parameter] = {}

    def head(self) -> Head:
        """From features to scores, differentiable in ``parameters``."""
        raise NotImplementedError

    def prepare(self, examples: Sequence[Example], augment: torch.Generator | None = None) -> Labelled:
        return self.resident.labelled(examples, augment)

    def outputs(self, prepared: Labelled, rows: Sequence[int]) -> Outputs:
        """Cross-entropy over these rows; ``extras["losses"]`` holds it for each row (B,)."""
        logits = self.head().logits(prepared.features(rows))
        losses = F.cross_entropy(logits, prepared.labels[list(rows)], reduction="none")
        return Outputs(losses.mean(), {"losses": losses})

    @torch.no_grad()
    def answer(self, examples: Sequence[Example]) -> list[str]:
        best = self.head().logits(self.resident.features(examples)).argmax(dim=-1)
        return [self.class_names[i] for i in best.tolist()]


class ZeroShotClassifier(Classifier):
    """Classes named by a fixed template: the reference row of every table."""

    def head(self) -> Head:
        texts = [self.resident.zero_shot_template.replace("{class}", name) for name in self.class_names]
        return TextHead(self.resident.clip.logit_scale, self.resident.clip.text_features(texts))


class PromptClassifier(Classifier):
    """Classes named after a learned prompt v (M, W), the one parameter (CoOp, Zhou et al. 2022)."""

    def __init__(self, resident: ResidentClip, class_names: Sequence[str], prompt: Tensor) -> None:
        super().__init__(resident, class_names)
        self.prompt = nn.Parameter(prompt.to(resident.device).clone())
        self.parameters = {"prompt": self.prompt}
        self.texts = resident.texts(class_names, prompt.shape[0])

    def head(self) -> Head:
        return TextHead(self.resident.clip.logit_scale, self.texts.features(self.prompt))


class MixtureClassifier(PromptClassifier):
    """The own prompt and frozen ones of others (E, M, W) under a gate; prompt and gate train (pFedMoAP)."""

    def __init__(self, resident: ResidentClip, class_names: Sequence[str], state: Tensors, mixing: float) -> None:
        """``state``: "prompt", "others" and the tensors of "gate."; ``mixing``: λ."""
        super().__init__(resident, class_names, state["prompt"])
        self.others = resident.frozen_text(state["others"], class_names)
        self.mixing = mixing
        self.gate = make_gate({name: t.to(resident.device) for name, t in state.items()}, self.others.shape[-1])
        self.parameters = {"prompt": self.prompt, **{f"gate.{n}": p for n, p in self.gate.named_parameters()}}

    def head(self) -> Head:
        text = self.texts.features(self.prompt)
        return MixtureHead(self.resident.clip.logit_scale, text, self.others, self.gate, self.mixing)


class MemoryClassifier(PromptClassifier):
    """A prompt and the client's own training features (pFedPrompt); for evaluation."""

    def __init__(self, resident: ResidentClip, class_names: Sequence[str], state: Tensors) -> None:
        """``state``: "prompt", "memory.features" (n, D), "memory.labels" (n,), "memory.weights" (a, β)."""
        super().__init__(resident, class_names, state["prompt"])
        self.features = state["memory.features"].to(resident.device)
        self.labels = state["memory.labels"].to(resident.device)
        self.weight, self.sharpness = state["memory.weights"].tolist()

    def head(self) -> MemoryHead:
        text = self.texts.features(self.prompt)
        scale = self.resident.clip.logit_scale
        return MemoryHead(scale, text, self.features, self.labels, self.weight, self.sharpness)
