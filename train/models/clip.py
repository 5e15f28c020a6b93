"""The resident CLIP: cached image features, and classification by a prompt.

Letters: n examples, D joint embedding width, C classes, M prompt vectors, W text width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adapters_store.base import base_id
from adapters_store.manifest import BaseRef, ImageTransform
from adapters_store.personal.clip import load_clip
from adapters_store.personal.images import to_pixels
from adapters_store.personal.prompt import PromptedText
from train.data import Example
from train.methods.base import Outputs

SUFFIX_TEMPLATE = "{class}."  # METHODS §1: [SOS][v_1 … v_M][class name][.][EOS]


@dataclass(frozen=True)
class LabelledFeatures:
    features: Tensor  # (n, D), L2-normalised
    labels: Tensor  # (n,)


class ResidentClip:
    """The resident base of family clip; everything in it is frozen."""

    family: Literal["mllm", "clip"] = "clip"

    def __init__(
        self,
        name: str,
        folder: Path,
        device: torch.device | str = "cpu",
        zero_shot_template: str = "a photo of a {class}.",
    ) -> None:
        self.base = BaseRef(id=base_id(folder, None), name=name, quantization=None)
        self.clip = load_clip(folder, device=device)
        self.image_transform: ImageTransform = self.clip.image_transform
        self.zero_shot_template = zero_shot_template
        self.device = torch.device(device)
        self.feature_cache: dict[str, Tensor] = {}  # one federation a process, so the example's uid is key enough

    def features(self, examples: Sequence[Example]) -> Tensor:
        """Normalised image features (n, D), computed once an image."""
        missing = list({e.uid: e for e in examples if e.uid not in self.feature_cache}.values())
        for i in range(0, len(missing), 64):
            chunk = missing[i : i + 64]
            pixels = torch.stack([to_pixels(example.image, self.image_transform) for example in chunk])
            features = self.clip.image_features(pixels.to(self.device))
            self.feature_cache.update((e.uid, f) for e, f in zip(chunk, features, strict=True))
        return torch.stack([self.feature_cache[example.uid] for example in examples])

    def labelled(self, examples: Sequence[Example]) -> LabelledFeatures:
        labels = torch.tensor([example.label for example in examples], device=self.device)
        return LabelledFeatures(self.features(examples), labels)


class ZeroShotClassifier:
    """Classes named by a fixed template: the reference row of every table."""

    def __init__(self, resident: ResidentClip, class_names: Sequence[str]) -> None:
        self.resident, self.class_names = resident, class_names
        self.parameters: Mapping[str, nn.Parameter] = {}
        texts = [resident.zero_shot_template.replace("{class}", name) for name in class_names]
        self.text = resident.clip.text_features(texts)  # (C, D)

    def prepare(self, examples: Sequence[Example]) -> LabelledFeatures:
        return self.resident.labelled(examples)

    def outputs(self, prepared: LabelledFeatures, rows: Sequence[int]) -> Outputs:
        return Outputs(_cross_entropy(self.resident, prepared, rows, self.text), {})

    def answer(self, examples: Sequence[Example]) -> list[str]:
        return _nearest(self.resident, examples, self.text, self.class_names)


class PromptClassifier:
    """Classes named after a learned prompt v (M, W), the one parameter (CoOp, Zhou et al. 2022)."""

    def __init__(self, resident: ResidentClip, class_names: Sequence[str], prompt: Tensor) -> None:
        self.resident, self.class_names = resident, class_names
        self.prompt = nn.Parameter(prompt.to(resident.device).clone())
        self.parameters: Mapping[str, nn.Parameter] = {"prompt": self.prompt}
        self.texts = PromptedText(resident.clip, class_names, SUFFIX_TEMPLATE, prompt.shape[0])

    def prepare(self, examples: Sequence[Example]) -> LabelledFeatures:
        return self.resident.labelled(examples)

    def outputs(self, prepared: LabelledFeatures, rows: Sequence[int]) -> Outputs:
        return Outputs(_cross_entropy(self.resident, prepared, rows, self.texts.features(self.prompt)), {})

    @torch.no_grad()
    def answer(self, examples: Sequence[Example]) -> list[str]:
        return _nearest(self.resident, examples, self.texts.features(self.prompt), self.class_names)


def _cross_entropy(resident: ResidentClip, data: LabelledFeatures, rows: Sequence[int], text: Tensor) -> Tensor:
    """Cross-entropy of p = softmax(τ cos(f(x), g(t_c))) over these rows; text (C, D)."""
    logits = resident.clip.logit_scale * data.features[list(rows)] @ text.T
    return F.cross_entropy(logits, data.labels[list(rows)])


def _nearest(
    resident: ResidentClip, examples: Sequence[Example], text: Tensor, class_names: Sequence[str]
) -> list[str]:
    best = (resident.features(examples) @ text.T).argmax(dim=-1)
    return [class_names[i] for i in best.tolist()]
