"""Soft tokens: what an image is to the language model, by the frozen vision tower and the subject's own connector.

Letters: B images, N soft tokens of one image, V width of the tower's features, W width of the language model.
"""

import base64
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adapters_store.personal.tensor_cache import TensorCache
from adapters_store.pictures.pixels import to_pixels
from adapters_store.pictures.transform import ImageTransform
from serve.chat.connector_batch import BatchedConnector, connect
from serve.chat.connectors import Connectors
from serve.chat.vision import Vision
from serve.errors import GatewayError
from serve.metrics import Metrics
from serve.pictures.batching import Batcher
from serve.pictures.images import Picture
from serve.settings import MIB, Settings
from serve.versions.subjects import Subject


@dataclass(frozen=True)
class _Asked:
    """One image on its way: its ``features`` (N, V) where they are known, ``connector`` None for the projector."""

    image: Image.Image
    transform: ImageTransform
    features: Tensor | None
    connector: BatchedConnector | None


class SoftTokens:
    """Encodes everybody's images in shared batches, and remembers them per key: nobody can time another's."""

    def __init__(self, base: Path, settings: Settings, metrics: Metrics) -> None:
        self._vision = Vision(base, torch.device(settings.encoder_device))
        self.width = self._vision.width
        self.limit = self._vision.limit
        self._connectors = Connectors(self._vision, settings, metrics)
        self._metrics = metrics
        self._batcher = Batcher(self._encode, settings.max_batch, settings.max_wait_ms)
        self._cache = TensorCache(settings.cache_mib * MIB)

    async def __call__(self, owner: str, picture: Picture, subject: Subject) -> Tensor:
        """Soft tokens (N, W), float32, of one image that this owner of a key asks the subject about."""
        seen = (owner, subject.image_transform, picture.digest)
        soft = self._cache.get((*seen, subject.connector))
        if soft is None:
            async with self._connectors.using(subject) as connector:
                asked = _Asked(picture.image, subject.image_transform, self._cache.get(seen), connector)
                features, soft = await self._batcher(asked)
            self._cache.put(seen, features)
            self._cache.put((*seen, subject.connector), soft)
        return soft

    async def load(self, subject: Subject) -> None:
        """Has the subject's connector in memory. ValueError where it or the subject's images do not fit the base."""
        size, taken = subject.image_transform.size, self._vision.side
        if size != taken:  # one such image would spoil a batch that others share
            raise ValueError(f"image_transform.size is {size} where the base takes {taken}")
        await self._connectors.load(subject)

    def unload(self, subject: Subject) -> None:
        """Forgets the subject's connector."""
        self._connectors.unload(subject)

    async def close(self) -> None:
        """Ends the encoder's thread."""
        await self._batcher.close()

    @torch.inference_mode()
    def _encode(self, items: Sequence[_Asked]) -> list[tuple[Tensor, Tensor]]:
        """Features (N, V) and soft tokens (N, W) of every image."""
        fresh = [item for item in items if item.features is None]
        encoded = iter(self._features(fresh) if fresh else ())
        features = [next(encoded) if item.features is None else item.features for item in items]
        return list(zip(features, self._soft([item.connector for item in items], features), strict=True))

    def _features(self, items: Sequence[_Asked]) -> list[Tensor]:
        self._metrics.encoded("mllm", len(items))
        began = time.perf_counter()
        found = self._vision.features(torch.stack([to_pixels(item.image, item.transform) for item in items])).cpu()
        self._metrics.soft_tokens("features", len(items), time.perf_counter() - began)
        return [one.clone() for one in found]  # a view, kept, would keep its whole batch

    def _soft(self, connectors: Sequence[BatchedConnector | None], features: Sequence[Tensor]) -> list[Tensor]:
        """The soft tokens of features (N, V), those of the base's projector in one batch and all others in another."""
        began = time.perf_counter()
        stacked = torch.stack(list(features)).to(self._vision.device)
        soft = stacked.new_empty((*stacked.shape[:2], self.width))
        plain = [row for row, connector in enumerate(connectors) if connector is None]
        if plain:
            soft[plain] = self._vision.projector(stacked[plain])
        own = [row for row, connector in enumerate(connectors) if connector is not None]
        if own:
            soft[own] = connect([connector for connector in connectors if connector is not None], stacked[own])
        soft = soft.cpu()
        self._metrics.soft_tokens("connectors", len(features), time.perf_counter() - began)
        return [one.clone() for one in soft]


def engine_payload(tokens: Tensor, width: int, max_tokens: int, dtype: torch.dtype = torch.float32) -> str:
    """The soft tokens (N, W) as vLLM reads them, base64 of a .npy file, once they are sound in its ``dtype``.

    One NaN, or a tensor of another shape, would spoil answers of others in the engine.
    """
    if tokens.ndim != 2 or tokens.shape[1] != width or not 0 < tokens.shape[0] <= max_tokens:
        raise GatewayError(
            500, f"soft tokens of shape {tuple(tokens.shape)} where (1 to {max_tokens}, {width}) is needed"
        )
    if not bool(torch.isfinite(tokens.to(dtype)).all()):
        raise GatewayError(500, "soft tokens of this image are not finite; nothing was sent to the engine")
    buffer = io.BytesIO()
    np.save(buffer, tokens.float().contiguous().numpy(), allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()
