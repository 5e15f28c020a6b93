"""One forward for the adapted tower: what the base computes with W + BA, what PEFT computes, and its gradients."""

import copy
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
import torch.nn.functional as F
from peft import PeftModel
from torch import Tensor, nn

from adapters_store.personal.adapted_tower import Delta, Factors
from adapters_store.personal.clip import Clip, load_clip
from adapters_store.personal.vision_lora import (
    PREFIX,
    check_vision_fit,
    image_features,
    linear_weights,
    read_vision_lora,
    vision_deltas,
    weight_of,
)
from adapters_store.pictures.transform import ImageTransform
from tests.floats import CLIP_IMAGE, block, check_close
from tests.serve.artefacts import CLIP
from train.models.vision_lora import vision_lora_files

pytestmark = pytest.mark.numeric

SMALL = 3 * 8 * 8 + 2 * block(16, 8, 5, 64) + 3 * 16  # additions in the tower of ``small``
ENDS = ("attn", "attn.base_layer.out_proj", "mlp.c_fc", "mlp.c_proj")


@pytest.fixture(scope="module")
def base() -> Clip:
    """The embedded dual encoder."""
    return load_clip(CLIP)


def small(dtype: torch.dtype = torch.float32, **vision: Any) -> Clip:
    """An untrained ViT of two blocks, width 16, for images of side 16."""
    config = {"image_size": 16, "patch_size": 8, "width": 16, "head_width": 8, "layers": 2, "ls_init_value": 0.7}
    text = {"context_length": 8, "vocab_size": 32, "width": 16, "heads": 2, "layers": 1}
    torch.manual_seed(0)
    model = open_clip.CLIP(embed_dim=16, vision_cfg=config | vision, text_cfg=text).to(dtype).eval()
    transform = ImageTransform(size=16, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    return Clip(model.requires_grad_(False), lambda texts: torch.zeros(len(texts), 8, dtype=torch.long), transform)


def random_tensors(clip: Clip, ends: tuple[str, ...] = ENDS, rank: int = 4, size: float = 0.1) -> dict[str, Tensor]:
    """Factors for these linears of every block, by PEFT's names."""
    random, weights, tensors = torch.Generator().manual_seed(1), linear_weights(clip), {}
    for i in range(len(weights) // len(ENDS)):
        for end in ends:
            module = f"{PREFIX}transformer.resblocks.{i}.{end}"
            rows, columns = weights[weight_of(module)].shape
            tensors[f"{module}.lora_A.weight"] = size * torch.randn(rank, columns, generator=random)
            tensors[f"{module}.lora_B.weight"] = size * torch.randn(rows, rank, generator=random)
    return {name: tensor.to(clip.logit_scale.dtype) for name, tensor in tensors.items()}


def pixels(clip: Clip, images: int) -> Tensor:
    size = clip.image_transform.size
    random = torch.randn(images, 3, size, size, generator=torch.Generator().manual_seed(2))
    return random.to(clip.logit_scale.dtype)


def merged(clip: Clip, deltas: dict[str, Factors]) -> nn.Module:
    """A copy of the dual encoder with BA added to its weights, and nothing of ours in its forward."""
    model = copy.deepcopy(clip.model)
    for name, (b, a) in deltas.items():
        model.visual.get_parameter(name).data += b @ a  # type: ignore[union-attr]
    return model


@torch.no_grad()
@pytest.mark.parametrize(
    "vision", [{}, {"pool_type": "avg"}, {"attentional_pool": True}, {"pos_embed_type": "sin_cos_2d"}]
)
@pytest.mark.parametrize("images", [1, 9])
def test_features_are_those_of_the_weights_plus_ba(vision: dict[str, Any], images: int) -> None:
    clip = small(**vision)
    deltas = vision_deltas(random_tensors(clip), 2.0)
    seen = pixels(clip, images)
    expected = merged(clip, deltas).encode_image(seen, normalize=True)  # type: ignore[operator]
    dense: dict[str, Delta] = {name: b @ a for name, (b, a) in deltas.items()}
    tracked: dict[str, Delta] = {name: (b.requires_grad_(), a) for name, (b, a) in deltas.items()}  # beside, unsummed
    for found in (deltas, dense, tracked):
        check_close(image_features(clip, found, seen), expected, SMALL)
    assert not torch.allclose(clip.image_features(seen), expected, atol=1e-2)
    check_close(image_features(clip, {}, seen), clip.image_features(seen), SMALL)


@torch.no_grad()
def test_the_frozen_tower_stays_as_it_was(base: Clip) -> None:
    before = {name: parameter.clone() for name, parameter in base.model.named_parameters()}
    seen = base.image_features(pixels(base, 2))
    image_features(base, vision_deltas(random_tensors(base), 2.0), pixels(base, 2))
    assert torch.equal(base.image_features(pixels(base, 2)), seen)
    assert all(torch.equal(parameter, before[name]) for name, parameter in base.model.named_parameters())


def peft_model(base: Clip, tensors: dict[str, Tensor], folder: Path) -> PeftModel:
    for name, data in vision_lora_files("bases/tiny/clip", tensors, 2.0).items():
        (folder / name).write_bytes(data)
    return PeftModel.from_pretrained(copy.deepcopy(base.model), folder).eval()


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:Found missing adapter keys")  # PEFT has an out_proj there, of zeros
def test_peft_loads_the_files_and_computes_the_same_features(base: Clip, tmp_path: Path) -> None:
    tensors = random_tensors(base, ("attn", "mlp.c_fc", "mlp.c_proj"))
    model = peft_model(base, tensors, tmp_path)
    found = image_features(base, vision_deltas(tensors, 2.0), pixels(base, 3))
    check_close(model.encode_image(pixels(base, 3), normalize=True), found, CLIP_IMAGE)


@torch.no_grad()
def test_peft_has_the_same_updates_where_out_proj_is_adapted_too(base: Clip, tmp_path: Path) -> None:
    tensors = random_tensors(base)
    model = peft_model(base, tensors, tmp_path)
    deltas = vision_deltas(tensors, 2.0)
    of_peft = dict(model.named_modules())
    for module in {name.partition(".lora_")[0] for name in tensors}:
        b, a = deltas[weight_of(module)]
        check_close(of_peft[module].get_delta_weight("default"), b @ a, len(a))


def test_gradients_are_finite_differences_in_float64() -> None:
    clip = small(torch.float64)
    tensors = [tensor.requires_grad_() for tensor in random_tensors(clip, rank=2, size=0.3).values()]
    names, target = list(random_tensors(clip)), F.normalize(torch.ones(3, 16, dtype=torch.float64), dim=-1)

    def loss(*values: Tensor) -> Tensor:
        deltas = vision_deltas(dict(zip(names, values, strict=True)), 2.0)
        return (1 - (image_features(clip, deltas, pixels(clip, 3)) * target).sum(-1)).mean()

    assert torch.autograd.gradcheck(loss, tensors, fast_mode=True)
    deltas = vision_deltas(dict(zip(names, tensors, strict=True)), 2.0)
    dense = [(b @ a).detach().requires_grad_() for b, a in deltas.values()]

    def dense_loss(*values: Tensor) -> Tensor:
        return (image_features(clip, dict(zip(deltas, values, strict=True)), pixels(clip, 3)) * target).sum()

    assert torch.autograd.gradcheck(dense_loss, dense, fast_mode=True)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("transformer.resblocks.0.attn", "is no linear in a block of an open_clip vision tower"),
        ("visual.trunk.blocks.0.attn.qkv", "is no linear in a block"),
        ("visual.transformer.resblocks.0.attn.out_proj", "is no linear in a block"),
        ("visual.transformer.resblocks.7.attn", "transformer.resblocks.7.attn.in_proj_weight, which the base's"),
        ("visual.transformer.resblocks.0.mlp.c_fc", r"of shape \[64, 24\] where the base has \[64, 16\]"),
    ],
)
def test_what_the_tower_cannot_take_is_refused(module: str, reason: str) -> None:
    tensors = {f"base_model.model.{module}.lora_{side}.weight": torch.ones(shape) for side, shape in SIDES.items()}
    with pytest.raises(ValueError, match=reason):
        check_vision_fit(small(), vision_deltas(tensors, 1.0))


SIDES = {"A": (2, 24), "B": (64, 2)}


def test_other_tensors_and_halves_are_refused() -> None:
    tensors = random_tensors(small())
    with pytest.raises(ValueError, match="has no pair of lora_A and lora_B"):
        vision_deltas(dict(list(tensors.items())[1:]), 1.0)
    with pytest.raises(ValueError, match=r"tensor visual\.proj of adapter_model\.safetensors is no LoRA factor"):
        vision_deltas({"visual.proj": torch.ones(2, 2)}, 1.0)


@pytest.mark.parametrize(
    "vision", [{"output_tokens": True}, {"timm_model_name": "vit_tiny_patch16_224"}, {"block_type": "custom"}]
)
def test_other_towers_are_refused(vision: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs open_clip's VisionTransformer with torch's attention; found "):
        linear_weights(small(**vision))


@pytest.mark.parametrize("rslora", [False, True])
def test_files_come_back_as_tensors_and_scale(rslora: bool) -> None:
    tensors = random_tensors(small())
    files = vision_lora_files("small", {name: tensor.half() for name, tensor in tensors.items()}, 2.0)
    if rslora:
        files["adapter_config.json"] = files["adapter_config.json"].replace(b"{", b'{"use_rslora": true,', 1)
    found, scale = read_vision_lora(files)
    assert scale == (4.0 if rslora else 2.0)  # rank 4, alpha 8
    assert all(torch.equal(found[name], tensor.half().float()) for name, tensor in tensors.items())
