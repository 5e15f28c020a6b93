"""Classification clients: images of all of them encoded together, then each client's own head.

Letters: B images, C classes, E experts, D joint embedding width.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from adapters_store.base import clip_base_id
from adapters_store.manifest import ImageTransform
from adapters_store.personal.clip import load_clip
from adapters_store.personal.heads import Head, MixtureHead, make_head
from adapters_store.personal.images import to_pixels
from adapters_store.personal.prompt import prompt_width
from adapters_store.personal.tensor_cache import TensorCache
from serve.batching import Batcher
from serve.head_fit import check_head
from serve.images import Picture
from serve.metrics import Metrics
from serve.settings import MIB, Settings
from serve.subjects import Subject
from serve.zero_shot import ZeroShot


@dataclass(frozen=True)
class Classified:
    """Every class with its probability, the most probable first; they add up to 1.

    ``experts``: of a version with a gate, each expert's attention weight for the first class, mean over the heads.
    They add up to 1 too, and the client's own prompt comes first.
    """

    classes: list[tuple[str, float]]
    experts: list[tuple[str, float]] | None = None

    def body(self, top_k: int) -> dict[str, Any]:
        """The fields of the answer."""
        top = [{"class_name": name, "probability": probability} for name, probability in self.classes[:top_k]]
        experts = [{"id": name, "weight": weight} for name, weight in self.experts or ()]
        return {"top": top, "experts": experts} if experts else {"top": top}


class Classifier:
    """A frozen dual encoder, and the head of every version in use. It is a host like the engine's."""

    max_rank: int | None = None
    generation: int | None = 1  # in this process: never gone before the gateway itself

    def __init__(self, base: str, settings: Settings, metrics: Metrics) -> None:
        """``base``: an open_clip folder, or a model of open_clip by name, with ``settings.clip_pretrained``."""
        self.base_id = clip_base_id(base, settings.clip_pretrained)
        self._device = torch.device(settings.encoder_device)
        self._clip = load_clip(base, settings.clip_pretrained, self._device)
        self._heads: dict[str, Head] = {}  # by subject name
        self._zero_shot = ZeroShot(self._clip, settings)
        self._metrics = metrics
        self._batcher = Batcher(self._encode, settings.max_batch, settings.max_wait_ms)
        self._cache = TensorCache(settings.cache_mib * MIB)

    def require_up(self) -> None:
        """Always up."""

    async def load(self, subject: Subject) -> None:
        """Makes the version's head: its text features are computed here, once. ValueError where it is unfit."""
        self._heads[subject.name] = await asyncio.to_thread(self._head, subject)

    async def unload(self, subject: Subject) -> None:
        """Forgets the version's head."""
        self._heads.pop(subject.name, None)

    async def close(self) -> None:
        """Ends the encoders' threads."""
        await self._batcher.close()
        await self._zero_shot.close()

    async def answer(self, subject: Subject, picture: Picture, owner: str) -> Classified:
        """What the version says of the picture, over its own classes."""
        head = self._heads[subject.name]
        features = await self._image_features(picture, subject.image_transform, owner)
        return await asyncio.to_thread(self._classify, head, subject.class_names, features)

    async def zero_shot(self, class_names: Sequence[str], picture: Picture, owner: str) -> Classified:
        """What the base says of the picture, over classes that it is given."""
        head = await self._zero_shot.head(class_names, owner)
        features = await self._image_features(picture, self._clip.image_transform, owner)
        return await asyncio.to_thread(self._classify, head, class_names, features)

    async def _image_features(self, picture: Picture, transform: ImageTransform, owner: str) -> Tensor:
        """(D,)"""
        key = (owner, transform, picture.digest)
        found = self._cache.get(key)
        if found is None:
            found = await self._batcher((picture.image, transform))
            self._cache.put(key, found)
        return found

    @torch.inference_mode()
    def _encode(self, items: Sequence[tuple[Image.Image, ImageTransform]]) -> list[Tensor]:
        self._metrics.encoded("clip", len(items))
        pixels = [to_pixels(image, transform) for image, transform in items]
        features = self._clip.image_features(torch.stack(pixels).to(self._device))
        return [one.clone() for one in features.cpu()]  # a view, kept, would keep its whole batch

    @torch.inference_mode()
    def _classify(self, head: Head, class_names: Sequence[str], features: Tensor) -> Classified:
        images = features[None].to(self._device)
        if not isinstance(head, MixtureHead):
            return Classified(_ranked(class_names, head.logits(images)[0]))
        logits, attention = head.explained(images)
        weights = attention[0, int(logits.argmax())].tolist()
        return Classified(_ranked(class_names, logits[0]), list(zip(head.experts, weights, strict=True)))

    @torch.inference_mode()
    def _head(self, subject: Subject) -> Head:
        size, taken = subject.image_transform.size, self._clip.image_transform.size
        if size != taken:  # one such image would spoil a batch that others share
            raise ValueError(f"image_transform.size is {size} where the base takes {taken}")
        stored = load_file(subject.folder / "prompt.safetensors")
        check_head(stored, prompt_width(self._clip), self._clip.joint_width, len(subject.class_names))
        tensors = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in stored.items()}
        head = make_head(self._clip, tensors, subject.class_names, subject.prompt_template)
        tried = self._clip.text_features([""])  # of a text, where an image's will be
        if not bool(torch.isfinite(head.logits(tried)).all()):
            raise ValueError("its class scores are not finite")
        return head


def _ranked(class_names: Sequence[str], logits: Tensor) -> list[tuple[str, float]]:
    """Names and probabilities by falling score (C,); not by probability, since the softmax rounds two scores to one."""
    scores, probabilities = logits.tolist(), logits.softmax(0).tolist()
    return [(class_names[c], probabilities[c]) for c in sorted(range(len(scores)), key=lambda c: -scores[c])]
