"""Versions with a LoRA on the vision tower: the base's weights once for all of them, each one's own factors beside.

Letters: n images, D joint embedding width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from adapters_store.personal.adapted_tower import Factors
from adapters_store.personal.clip import Clip
from adapters_store.personal.vision_lora import (
    CONFIG,
    WEIGHTS,
    check_vision_fit,
    image_features,
    read_vision_lora,
    vision_deltas,
)


@dataclass(frozen=True, eq=False)
class Tower:
    """What one version adds to the base's vision tower, by name of the weight in it."""

    name: str  # of the version
    deltas: Mapping[str, Factors]


def has_tower(folder: Path) -> bool:
    """Whether the version in this folder is a LoRA on the vision tower."""
    return (folder / WEIGHTS).exists()


@torch.inference_mode()
def read_tower(clip: Clip, name: str, folder: Path) -> Tower:
    """The version's factors, on the base's device. ValueError with one sentence where they do not fit the base."""
    tensors, scale = read_vision_lora({file: (folder / file).read_bytes() for file in (CONFIG, WEIGHTS)})
    device = clip.logit_scale.device
    deltas = vision_deltas({key: tensor.to(device) for key, tensor in tensors.items()}, scale)
    check_vision_fit(clip, deltas)
    size = clip.image_transform.size
    if not bool(torch.isfinite(image_features(clip, deltas, torch.zeros(1, 3, size, size, device=device))).all()):
        raise ValueError("its image features are not finite")
    return Tower(name, deltas)


def encode(clip: Clip, pixels: Tensor, towers: Sequence[Tower | None]) -> list[Tensor]:
    """(D,) of each image of pixels (n, 3, size, size), through the tower of its version; None: the base's own."""
    rows: dict[Tower | None, list[int]] = {}
    for row, tower in enumerate(towers):
        rows.setdefault(tower, []).append(row)
    found: dict[int, Tensor] = {}
    for tower, group in rows.items():
        some = pixels[group]
        encoded = clip.image_features(some) if tower is None else image_features(clip, tower.deltas, some)
        found |= zip(group, encoded.cpu(), strict=True)
    return [found[row].clone() for row in range(len(towers))]  # a view, kept, would keep its whole batch
