"""A base's own processor, followed: the same numbers as open_clip's and Hugging Face's, and a refusal of all else."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from transformers import CLIPImageProcessor, CLIPImageProcessorPil

from adapters_store.pictures.pixels import squared, to_pixels
from adapters_store.pictures.processors import of_llava, of_open_clip
from adapters_store.pictures.transform import ImageTransform
from tests.serve.artefacts import LLAVA, lora_manifest

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
LLAVA_15: dict[str, Any] = {
    "image_processor_type": "CLIPImageProcessor",
    "crop_size": {"height": 336, "width": 336},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": list(MEAN),
    "image_std": list(STD),
    "resample": 3,
    "rescale_factor": 1 / 255,
    "size": {"shortest_edge": 336},
}
"""As llava-hf/llava-1.5-7b-hf has it."""
SIZES = [(640, 480), (480, 640), (337, 1000), (1001, 400), (336, 343), (347, 336), (227, 224), (2000, 224), (224, 1999)]
SMALL = [(50, 75), (300, 40)]


def photograph(width: int, height: int) -> Image.Image:
    """Soft shapes with some grain, as a camera sees them."""
    random = np.random.default_rng(width)
    soft = Image.fromarray(random.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8))
    grain = random.integers(-8, 9, (height, width, 3))
    sharp = np.asarray(soft.resize((width, height), Image.Resampling.BICUBIC)) + grain
    return Image.fromarray(sharp.clip(0, 255).astype(np.uint8))


def llava(folder: Path, processor: dict[str, Any], side: int = 336) -> Path:
    """The embedded LLaVA's folder with another processor, as far as its transform is concerned."""
    folder.mkdir()
    config = json.loads((LLAVA / "config.json").read_text())
    config["vision_config"]["image_size"] = side
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def furthest(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference of two pictures' numbers."""
    return float((a - b).abs().max())


@pytest.mark.parametrize("size", SIZES + SMALL)
def test_as_open_clips_own_for_vit_b_32(size: tuple[int, int]) -> None:
    tag = open_clip.get_pretrained_cfg("ViT-B-32", "openai")
    config = {name: tag[name] for name in ("mean", "std", "interpolation", "resize_mode")}
    own = open_clip.image_transform(224, is_train=False, **config)
    picture = photograph(*size)
    assert furthest(to_pixels(picture, of_open_clip({"size": 224, **config})), own(picture)) < 0.02


@pytest.mark.parametrize("size", SIZES + SMALL)
def test_as_hugging_faces_own_for_llava_15(size: tuple[int, int], tmp_path: Path) -> None:
    transform, picture = of_llava(llava(tmp_path / "base", LLAVA_15)), photograph(*size)
    found = to_pixels(picture, transform)
    own = CLIPImageProcessorPil(**LLAVA_15)(picture, return_tensors="pt")["pixel_values"][0]
    assert furthest(found, own) < 0.02
    newer = CLIPImageProcessor(**LLAVA_15)(picture, return_tensors="pt")["pixel_values"][0]
    assert furthest(found, newer) < 2.01 / 255 / min(STD)  # torchvision rounds a resize otherwise than Pillow does


def test_older_spellings_mean_the_same(tmp_path: Path) -> None:
    older = of_llava(llava(tmp_path / "older", LLAVA_15 | {"size": 336, "crop_size": 336}))
    assert older == of_llava(llava(tmp_path / "newer", LLAVA_15))
    assert older.resize == "shortest_edge"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"do_pad": True}, "do_pad True: understood is False"),
        ({"do_resize": False}, "do_resize False: understood is True"),
        ({"do_normalize": False}, "do_normalize False"),
        ({"resample": 1}, r"resample 1: understood is 2 \(bilinear\) or 3 \(bicubic\)"),
        ({"rescale_factor": 1 / 127.5}, "rescale_factor 0.0078.*: understood is 1/255"),
        (
            {"size": {"shortest_edge": 448}},
            r"size \{'shortest_edge': 448\} and crop_size .*: understood is .* 336 × 336",
        ),
        ({"do_center_crop": False}, "crop_size None: understood is what makes 336 × 336"),
        ({"size": {"longest_edge": 336}}, "longest_edge"),
    ],
)
def test_what_a_processor_does_besides_is_refused(changed: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        of_llava(llava(tmp_path / "base", LLAVA_15 | changed))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"resize_mode": "longest"}, "resize_mode 'longest': understood is 'squash' or 'shortest'"),
        ({"interpolation": "nearest"}, "interpolation 'nearest'"),
        ({"size": (224, 256)}, r"size \[224, 256\]: understood is one side, of a square"),
    ],
)
def test_what_open_clip_does_besides_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        of_open_clip({"size": 224, "mean": MEAN, "std": STD} | changed)


def test_a_picture_of_one_pixels_breadth_takes_no_memory_for_its_length() -> None:
    transform = ImageTransform(size=224, mean=MEAN, std=STD, resize="shortest")
    assert squared(Image.new("RGB", (1, 8192)), transform).size == (224, 224)


def test_the_manifest_records_it_and_what_squashes_keeps_its_name() -> None:
    before = lora_manifest("ann")
    assert before.image_transform.resize == "squash"
    assert b"resize" not in before.canonical_json()
    crops = lora_manifest("ann", image_transform=before.image_transform.model_copy(update={"resize": "shortest"}))
    assert b'"resize":"shortest"' in crops.canonical_json()
    assert crops.version != before.version
    with pytest.raises(ValueError, match="resize"):
        lora_manifest("ann", image_transform=before.image_transform.model_dump() | {"resize": "longest"})


def test_the_embedded_bases_squash_as_their_own_configurations_say(tmp_path: Path) -> None:
    assert of_llava(LLAVA).resize == "squash"
    shutil.copy(LLAVA / "config.json", tmp_path)
    with pytest.raises(ValueError, match="has no image processor"):
        of_llava(tmp_path)
