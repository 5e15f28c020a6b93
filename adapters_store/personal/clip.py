"""A frozen open_clip dual encoder, loaded the same way for training and for serving."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from adapters_store.pictures.processors import of_open_clip
from adapters_store.pictures.transform import ImageTransform

Tokenise = Callable[[Sequence[str]], Tensor]


@dataclass(frozen=True)
class Clip:
    """The dual encoder in float32 and evaluation mode, nothing trainable, with its tokeniser and image transform."""

    model: nn.Module
    tokenise: Tokenise
    image_transform: ImageTransform

    @property
    def logit_scale(self) -> Tensor:
        """τ = exp(logit_scale), a scalar."""
        scale: Tensor = self.model.logit_scale.exp()  # type: ignore[operator]
        return scale

    @property
    def joint_width(self) -> int:
        """D, the width of image and text features."""
        return int(self.text_features([""]).shape[-1])

    @torch.no_grad()
    def image_features(self, pixels: Tensor) -> Tensor:
        """L2-normalised features (B, D) of pixels (B, 3, size, size)."""
        features: Tensor = self.model.encode_image(pixels, normalize=True)  # type: ignore[operator]
        return features

    @torch.no_grad()
    def text_features(self, texts: Sequence[str]) -> Tensor:
        """L2-normalised features (len(texts), D)."""
        tokens = self.tokenise(list(texts)).to(self.logit_scale.device)
        features: Tensor = self.model.encode_text(tokens, normalize=True)  # type: ignore[operator]
        return features


def load_clip(name: str | Path, pretrained: str | None = None, device: str | torch.device = "cpu") -> Clip:
    """The dual encoder of a local open_clip folder, or of an open_clip model name with its cached weights' tag."""
    import open_clip  # slow to import, and not everybody who names a Clip loads one

    identifier = f"local-dir:{name}" if Path(name).is_dir() else str(name)
    try:
        model = open_clip.create_model(identifier, pretrained=pretrained, precision="fp32", device=device)
    except RuntimeError as error:  # of load_state_dict, which is strict
        reason = " ".join(str(error).split())
        raise ValueError(
            f"base {str(name)!r} has other weights than its configuration asks for: {reason:.300}"
        ) from error
    model.eval().requires_grad_(False)
    return Clip(model, open_clip.get_tokenizer(identifier), of_open_clip(model.visual.preprocess_cfg))
