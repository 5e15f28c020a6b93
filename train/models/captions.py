"""Which of the anchors' captions belongs to an anchor, as CLIP sees it with an adapter on its vision tower.

It is the loss of anchored merging. The clients' LoRAs were trained in styles that no anchor has, and what is wanted of
their merge is a style that nobody has; anchors as they are, which the base knows already, say little about either, so
their pictures are changed.

Letters: n anchors, C different captions.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from adapters_store.personal.vision_lora import image_features, weight_of
from train.data import Example
from train.merging.adapter import Adapter
from train.models.augment import corrupt
from train.models.clip import ResidentClip


class Captions:
    """The anchors' captions, encoded once."""

    def __init__(self, resident: ResidentClip, anchors: Sequence[Example]) -> None:
        captions = list(dict.fromkeys(anchor.answer for anchor in anchors))
        self.resident, self.anchors = resident, anchors
        self.texts = resident.clip.text_features(captions)
        self.labels = torch.tensor([captions.index(anchor.answer) for anchor in anchors], device=resident.device)

    def logits(self, adapter: Adapter, random: Generator | None = None) -> Tensor:
        """(n, C) under an adapter of PEFT's module names, differentiable in it.

        Every call with ``random`` corrupts the anchors anew; without it they are as they are.
        """
        images = [anchor.image for anchor in self.anchors] if random is None else corrupt(self.anchors, random)
        deltas = {weight_of(module): (b.to(self.texts), a.to(self.texts)) for module, (b, a) in adapter.items()}
        features = image_features(self.resident.clip, deltas, self.resident.pixels(images))
        return self.resident.clip.logit_scale * features @ self.texts.T

    def loss(self, adapter: Adapter, random: Generator | None = None) -> Tensor:
        """Mean cross-entropy of these logits."""
        return F.cross_entropy(self.logits(adapter, random), self.labels)
