"""A LLaVA's frozen vision half: what of an image goes into a projector, and the base's own projector.

Letters: B images, N visual tokens of one image, V width of the features, W width of the language model.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, LlavaModel
from transformers.utils import logging as transformers_logging


class Vision:
    """The vision tower of the LLaVA in ``base`` in float32, and ``projector``, (…, V) → (…, W)."""

    def __init__(self, base: Path, device: torch.device) -> None:
        self.device = device
        self._model = _vision_half(base).to(device)  # type: ignore[arg-type]
        self.projector = self._model.multi_modal_projector
        self._model.multi_modal_projector = nn.Identity()  # what is left gives what a projector takes
        config = self._model.config
        self.side = int(config.vision_config.image_size)  # pixels
        self.width = int(config.text_config.hidden_size)
        self.limit = int(config.text_config.max_position_embeddings)
        with torch.inference_mode():
            self.sample = self.features(torch.zeros(1, 3, self.side, self.side))
        """Features (1, N, V) of a plain picture, to try a connector on."""

    def features(self, pixels: Tensor) -> Tensor:
        """(B, N, V), on the device, of pixels (B, 3, side, side)."""
        found = self._model.get_image_features(pixel_values=pixels.to(self.device), return_dict=True)
        return torch.stack(list(found.pooler_output))


def _vision_half(base: Path) -> LlavaModel:
    """The LLaVA of the folder without its language model's layers, and without those of the tower that are not read."""
    config = AutoConfig.from_pretrained(base)
    config.text_config.num_hidden_layers = 0
    read = config.vision_feature_layer
    if config.vision_config.model_type == "clip_vision_model" and isinstance(read, int) and read < -1:
        config.vision_config.num_hidden_layers += read + 1
        config.vision_feature_layer = -1
    transformers_logging.set_verbosity_error()  # it would list the layers left out, on purpose, as a problem
    transformers_logging.disable_progress_bar()
    model = LlavaModel.from_pretrained(base, config=config, dtype=torch.float32)
    model.train(False).requires_grad_(False)
    del model.language_model
    return model
