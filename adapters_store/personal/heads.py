"""From image features to class scores: what each method of the prompt family answers with, for trainer and gateway.

A head is built from the tensors of a published ``prompt.safetensors`` and does not say which method made them: the
tensors that are there decide. Letters: B images, C classes, E experts, n cached examples, D joint embedding width.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from adapters_store.personal.clip import Clip
from adapters_store.personal.gate import Gate
from adapters_store.personal.prompt import PromptedText

OWN = "own"
"""Name of the client's own prompt among the experts."""


class Head(Protocol):
    """Class scores of L2-normalised image features."""

    def logits(self, images: Tensor) -> Tensor:
        """(B, C) of images (B, D)."""


@dataclass(frozen=True)
class TextHead:
    """τ x·t_c: one prompt, or fixed texts (CoOp, PromptFL, zero-shot)."""

    scale: Tensor
    text: Tensor  # (C, D)

    def logits(self, images: Tensor) -> Tensor:
        return self.scale * images @ self.text.T


@dataclass(frozen=True)
class MixtureHead:
    """pFedMoAP: λ τ x·t_c + τ ⟨pool(x), G(x, c)⟩ over the client's own prompt and the non-local ones."""

    scale: Tensor
    text: Tensor  # (C, D), of the client's own prompt
    others: Tensor  # (E - 1, C, D), of the non-local prompts
    gate: Gate
    mixing: float  # λ
    experts: tuple[str, ...] = ()

    def logits(self, images: Tensor) -> Tensor:
        return self.explained(images)[0]

    def explained(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """``logits``, and each expert's attention weight (B, C, E), mean over the heads; the own prompt comes first."""
        aligned, attention = self.gate(images, torch.cat([self.text[None], self.others]))
        return self.scale * (self.mixing * (images @ self.text.T) + aligned), attention


@dataclass(frozen=True)
class MemoryHead:
    """pFedPrompt: τ x·t_c + a · exp(−β (1 − x F_trainᵀ)) Y_train over the client's own training features."""

    scale: Tensor
    text: Tensor  # (C, D)
    features: Tensor  # (n, D), L2-normalised
    labels: Tensor  # (n,)
    weight: float  # a
    sharpness: float  # β

    def logits(self, images: Tensor) -> Tensor:
        return self.scale * images @ self.text.T + self.weight * self.recalled(images)

    def recalled(self, images: Tensor) -> Tensor:
        """exp(−β (1 − x F_trainᵀ)) Y_train, (B, C)."""
        affinity = torch.exp(-self.sharpness * (1 - images @ self.features.T))
        return affinity.new_zeros(len(images), len(self.text)).index_add_(1, self.labels, affinity)


def make_head(clip: Clip, tensors: Mapping[str, Tensor], class_names: Sequence[str], template: str) -> Head:
    """The head that the tensors of a ``prompt.safetensors`` hold. Raises ValueError where they do not fit the base."""
    device = clip.logit_scale.device
    held = {name: tensor.to(device) for name, tensor in tensors.items()}
    prompt = held["prompt"]
    texts = PromptedText(clip, class_names, template, prompt.shape[0])
    text = texts.features(prompt)
    if "mixing" in held:
        others = held.get("others", prompt.new_zeros(0, *prompt.shape))
        names = (OWN, *(opaque_id(other) for other in others))
        gate = make_gate(held, text.shape[-1])
        return MixtureHead(clip.logit_scale, text, texts.features(others), gate, float(held["mixing"]), names)
    if "memory.features" in held:
        weight, sharpness = held["memory.weights"].tolist()
        return MemoryHead(clip.logit_scale, text, held["memory.features"], held["memory.labels"], weight, sharpness)
    return TextHead(clip.logit_scale, text)


def make_gate(tensors: Mapping[str, Tensor], features: int) -> Gate:
    """The gate of the tensors named ``gate.…``, for D = ``features``."""
    gate = Gate(features).to(tensors["gate.query.weight"].device)
    gate.load_state_dict({name.removeprefix("gate."): t for name, t in tensors.items() if name.startswith("gate.")})
    return gate


def opaque_id(prompt: Tensor) -> str:
    """What a non-local prompt is called: a digest of its values, which says nothing of whose it is."""
    return "p-" + hashlib.sha256(prompt.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:8]
