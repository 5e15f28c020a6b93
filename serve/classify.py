"""Classification clients: class text features once per version, images of all clients encoded together.

Letters: B images, C classes, D joint embedding width, M prompt vectors.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from adapters_store.base import base_id
from adapters_store.manifest import ImageTransform
from adapters_store.personal.clip import load_clip
from adapters_store.personal.images import to_pixels
from adapters_store.personal.prompt import PromptedText
from serve.batching import Batcher
from adapters_store.personal.tensor_cache import TensorCache
from serve.images import Picture
from serve.settings import MIB, Settings
from serve.subjects import Subject


class Classifier:
    """A frozen dual encoder, and the class features of every version in use. It is a host like the engine's."""

    max_rank: int | None = None
    generation: int | None = 1  # in this process: never gone before the gateway itself

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.base_id = base_id(folder, None)
        self._device = torch.device(settings.encoder_device)
        self._clip = load_clip(folder, device=self._device)
        self._scale = self._clip.logit_scale.cpu()
        self._classes: dict[str, Tensor] = {}  # (C, D) by subject name
        self._batcher = Batcher(self._encode, settings.max_batch, settings.max_wait_ms)
        self._cache = TensorCache(settings.cache_mib * MIB)

    def require_up(self) -> None:
        """Always up."""

    async def load(self, subject: Subject) -> None:
        """Computes the class features of the version. ValueError where its prompt does not fit the text tower."""
        self._classes[subject.name] = await asyncio.to_thread(self._class_features, subject)

    async def unload(self, subject: Subject) -> None:
        """Forgets the class features of the version."""
        self._classes.pop(subject.name, None)

    async def close(self) -> None:
        """Ends the encoder's thread."""
        await self._batcher.close()

    async def probabilities(self, subject: Subject, picture: Picture, owner: str) -> list[tuple[str, float]]:
        """Every class with its probability, most probable first; they add up to 1."""
        features = await self._image_features(subject, picture, owner)
        logits = self._scale * (self._classes[subject.name] @ features)  # (C,)
        return sorted(zip(subject.class_names, logits.softmax(0).tolist(), strict=True), key=lambda pair: -pair[1])

    async def _image_features(self, subject: Subject, picture: Picture, owner: str) -> Tensor:
        """(D,)"""
        key = (owner, subject.image_transform, picture.digest)
        found = self._cache.get(key)
        if found is None:
            found = await self._batcher((picture.image, subject.image_transform))
            self._cache.put(key, found)
        return found

    @torch.inference_mode()
    def _encode(self, items: Sequence[tuple[Image.Image, ImageTransform]]) -> list[Tensor]:
        pixels = [to_pixels(image, transform) for image, transform in items]
        return list(self._clip.image_features(torch.stack(pixels).to(self._device)).cpu())

    @torch.inference_mode()
    def _class_features(self, subject: Subject) -> Tensor:
        prompt = load_file(subject.folder / "prompt.safetensors")["prompt"].float()  # (M, width)
        text = PromptedText(self._clip, subject.class_names, subject.prompt_template, prompt.shape[0])
        features = text.features(prompt.to(self._device)).cpu()
        if not bool(torch.isfinite(features).all()):
            raise ValueError("its class features are not finite")
        return features
