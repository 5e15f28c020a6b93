"""Soft tokens: what an image is to the language model, computed here by the frozen vision tower and projector.

Letters: B images, N soft tokens of one image, W width of the language model.
"""

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import AutoConfig, LlavaModel
from transformers.utils import logging as transformers_logging

from adapters_store.manifest import ImageTransform
from adapters_store.personal.images import to_pixels
from adapters_store.personal.tensor_cache import TensorCache
from serve.batching import Batcher
from serve.errors import GatewayError
from serve.images import Picture
from serve.metrics import Metrics
from serve.settings import MIB, Settings


class SoftTokens:
    """Encodes everybody's images in shared batches, and remembers them per key: nobody can time another's."""

    def __init__(self, base: Path, settings: Settings, metrics: Metrics) -> None:
        self._device = torch.device(settings.encoder_device)
        self._model = _vision_half(base).to(self._device)  # type: ignore[arg-type]
        text = self._model.config.text_config
        self.width = int(text.hidden_size)
        self.limit = int(text.max_position_embeddings)
        self._metrics = metrics
        self._batcher = Batcher(self._encode, settings.max_batch, settings.max_wait_ms)
        self._cache = TensorCache(settings.cache_mib * MIB)

    async def __call__(self, owner: str, picture: Picture, transform: ImageTransform) -> Tensor:
        """Soft tokens (N, W), float32, of one image asked about by that owner of a key."""
        key = (owner, transform, picture.digest)
        found = self._cache.get(key)
        if found is None:
            found = await self._batcher((picture.image, transform))
            self._cache.put(key, found)
        return found

    async def close(self) -> None:
        """Ends the encoder's thread."""
        await self._batcher.close()

    @torch.inference_mode()
    def _encode(self, items: Sequence[tuple[Image.Image, ImageTransform]]) -> list[Tensor]:
        self._metrics.encoded("mllm", len(items))
        pixels = [to_pixels(image, transform) for image, transform in items]
        if len({picture.shape for picture in pixels}) > 1:  # transforms of different sizes do not stack
            return [self._features(picture[None])[0] for picture in pixels]
        return [one.clone() for one in self._features(torch.stack(pixels))]  # a view, kept, would keep its whole batch

    def _features(self, pixels: Tensor) -> Tensor:
        """(B, 3, side, side) → (B, N, W)"""
        pixels = pixels.to(self._device)
        features = self._model.get_image_features(pixel_values=pixels, return_dict=True).pooler_output
        return torch.stack(list(features)).cpu()


def engine_payload(tokens: Tensor, width: int, max_tokens: int) -> str:
    """The soft tokens (N, W) as vLLM reads them, base64 of a .npy file, once they are found sound.

    One NaN, or a tensor of another shape, would spoil answers of others in the engine.
    """
    if tokens.ndim != 2 or tokens.shape[1] != width or not 0 < tokens.shape[0] <= max_tokens:
        raise GatewayError(
            500, f"soft tokens of shape {tuple(tokens.shape)} where (1 to {max_tokens}, {width}) is needed"
        )
    if not bool(torch.isfinite(tokens).all()):
        raise GatewayError(500, "soft tokens of this image are not finite; nothing was sent to the engine")
    buffer = io.BytesIO()
    np.save(buffer, tokens.float().contiguous().numpy(), allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()


def _vision_half(base: Path) -> LlavaModel:
    """The LLaVA of the folder in float32 without its language model's layers."""
    config = AutoConfig.from_pretrained(base)
    config.text_config.num_hidden_layers = 0
    transformers_logging.set_verbosity_error()  # it would list the layers left out, on purpose, as a problem
    transformers_logging.disable_progress_bar()
    model = LlavaModel.from_pretrained(base, config=config, dtype=torch.float32)
    model.train(False).requires_grad_(False)
    del model.language_model
    return model
