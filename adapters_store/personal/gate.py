"""pFedMoAP's gate: attention of an image over the text features of several prompts (Luo et al., ICLR 2025).

Letters: B images, C classes, E experts (prompts), D joint embedding width, d_g width of the gate.
"""

import torch
from torch import Tensor, nn

HEADS = 8
WIDTH = 128
SCALE = 10.0
"""Replaces 1/√d_k in the attention's softmax [reference code]."""


class Gate(nn.Module):
    """Multi-head attention with the image as query and each class's experts as keys and values; biases on all four."""

    def __init__(self, features: int) -> None:
        """``features`` is D. Raises ValueError where the gate's width does not divide by its heads."""
        super().__init__()
        self.width = gate_width(features)
        self.query, self.key, self.value, self.output = (nn.Linear(self.width, self.width) for _ in range(4))

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """⟨pool(x_b), G(b, c)⟩ (B, C), and each expert's attention weight, mean over the heads (B, C, E).

        images (B, D) and texts (E, C, D) are L2-normalised. The image's query is projected once for all classes, and
        W_o is moved to the image's side of the inner product, so that no (B, C, d_g) features are formed.
        """
        x, experts = pool(images, self.width), pool(texts, self.width)
        query, outer = _heads(self.query(x)), _heads(x @ self.output.weight)
        key, value = _heads(self.key(experts)), _heads(self.value(experts))
        attention = (SCALE * torch.einsum("bhd,echd->bche", query, key)).softmax(-1)
        aligned = torch.einsum("bhd,echd->bche", outer, value)
        return (attention * aligned).sum((-2, -1)) + (x @ self.output.bias)[:, None], attention.mean(-2)


def gate_width(features: int) -> int:
    """d_g for D = ``features``: 128, or a quarter of a smaller D."""
    width = WIDTH if features >= WIDTH else features // 4
    if width == 0 or width % HEADS:
        raise ValueError(
            f"base: its joint embedding is {features} wide, which gives the gate a width of {width}; "
            f"a multiple of its {HEADS} heads is needed"
        )
    return width


def pool(features: Tensor, width: int) -> Tensor:
    """(…, width) of features (…, D): every (D / width)-th entry from the first, not normalised again."""
    return features[..., :: features.shape[-1] // width][..., :width]


def initial_gate(features: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Tensors of an untrained gate, by parameter name, initialised like torch's multi-head attention."""
    width = gate_width(features)
    joint = (6 / (4 * width)) ** 0.5  # Xavier over query, key and value together
    bounds = {"query": joint, "key": joint, "value": joint, "output": width**-0.5}
    tensors = {}
    for name, bound in bounds.items():
        tensors[f"{name}.weight"] = bound * (2 * torch.rand(width, width, generator=generator) - 1)
        tensors[f"{name}.bias"] = torch.zeros(width)
    return tensors


def _heads(x: Tensor) -> Tensor:
    heads: Tensor = x.unflatten(-1, (HEADS, -1))
    return heads
