"""The image transform of a base: what its own processor does, as a manifest records it.

Anything a processor could do besides is refused by name, not left out.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from adapters_store.pictures.transform import ImageTransform

PILLOW: Final = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers, as Hugging Face's configurations have them
STEPS: Final = {"do_resize": True, "do_rescale": True, "do_normalize": True, "do_pad": False}
"""What a Hugging Face processor must do and must not; where it does not say, this is what it does."""


def of_open_clip(preprocess: Mapping[str, Any]) -> ImageTransform:
    """Of open_clip's ``preprocess_cfg``. ValueError where it is not understood."""
    size = preprocess["size"]
    sides = {size} if isinstance(size, int) else set(size)
    resize, interpolation = preprocess.get("resize_mode", "shortest"), preprocess.get("interpolation", "bicubic")
    interpolation = "bicubic" if interpolation == "random" else interpolation  # as open_clip itself, but for training
    _allowed("preprocess_cfg.size", sorted(sides), len(sides) == 1, "one side, of a square")
    _allowed("preprocess_cfg.resize_mode", resize, resize in ("squash", "shortest"), "'squash' or 'shortest'")
    _allowed("preprocess_cfg.interpolation", interpolation, interpolation in PILLOW.values(), "'bicubic' or 'bilinear'")
    return ImageTransform(
        size=sides.pop(), mean=preprocess["mean"], std=preprocess["std"], interpolation=interpolation, resize=resize
    )


def of_llava(folder: Path) -> ImageTransform:
    """Of the image processor of a Hugging Face LLaVA folder. ValueError where it has none or it is not understood."""
    processor = _processor(folder)
    side = json.loads((folder / "config.json").read_text())["vision_config"]["image_size"]
    for step, done in STEPS.items():
        _allowed(step, processor.get(step, done), bool(processor.get(step, done)) == done, str(done))
    resample, factor = processor.get("resample", 3), processor.get("rescale_factor", 1 / 255)
    _allowed("resample", resample, resample in PILLOW, "2 (bilinear) or 3 (bicubic)")
    _allowed("rescale_factor", factor, abs(255 * factor - 1) < 1e-6, "1/255")
    return ImageTransform(
        size=side,
        mean=processor["image_mean"],
        std=processor["image_std"],
        interpolation=PILLOW[resample],
        resize=_resize(processor, side),
    )


def _resize(processor: Mapping[str, Any], side: int) -> Literal["squash", "shortest_edge"]:
    """How the processor makes the vision tower's square of a picture."""
    square, shorter = ({"height": side, "width": side}, side), ({"shortest_edge": side}, side)  # newer, older spelling
    size, crop = processor.get("size"), processor.get("crop_size") if processor.get("do_center_crop", True) else None
    if size == square[0] and crop in (None, *square):
        return "squash"
    if size in shorter and crop in square:
        return "shortest_edge"
    raise ValueError(
        f"the base's image processor has size {size} and crop_size {crop}: understood is what makes {side} × {side}"
    )


def _processor(folder: Path) -> dict[str, Any]:
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = folder / name
        if path.exists():
            config = json.loads(path.read_text())
            found: dict[str, Any] = config.get("image_processor", config)
            if "image_mean" in found:
                return found
    raise ValueError(f"base {str(folder)!r} has no image processor (preprocessor_config.json or processor_config.json)")


def _allowed(field: str, found: Any, holds: bool, allowed: str) -> None:
    if not holds:
        raise ValueError(f"the base's image processor has {field} {found!r}: understood is {allowed}")
