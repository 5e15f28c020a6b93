"""The committed folders: an open_clip CLIP and a Hugging Face LLaVA, fp16."""

import json
from pathlib import Path
from typing import Any, Final

import torch
from open_clip import CLIP
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import CLIPVisionConfig, GenerationConfig, LlamaConfig, LlavaConfig

from train.data.world.vocabulary import IMAGE_SIZE
from train.pretraining.clip import FEATURE_LAYER, MEAN, MODEL, PATCH, PATCHES, STD, make_clip
from train.pretraining.llava import LANGUAGE, Llava
from train.pretraining.packing import IMAGE_TOKEN
from train.pretraining.tokenizer import save_tokenizer

CLIP_WEIGHTS: Final = "open_clip_model.safetensors"
TOKEN_IDS: Final[dict[str, Any]] = {key: LANGUAGE[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    """Writes the tensors in fp16, readable by all."""
    halves = {name: tensor.detach().cpu().half().contiguous() for name, tensor in tensors.items()}
    save_file(halves, path, {"format": "pt"})
    path.chmod(0o644)


def export_clip(model: CLIP, folder: Path) -> None:
    """Writes the open_clip folder: configuration, weights, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    preprocess = {"mean": list(MEAN), "std": list(STD), "interpolation": "bicubic", "resize_mode": "squash"}
    _write_json(folder / "open_clip_config.json", {"model_cfg": MODEL, "preprocess_cfg": preprocess})
    _save(dict(model.state_dict()), folder / CLIP_WEIGHTS)
    save_tokenizer(folder, chat=False)


def load_clip(folder: Path) -> CLIP:
    """The CLIP of an exported folder, fp32."""
    model = make_clip(0)
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / CLIP_WEIGHTS).items()})
    return model.eval()


def vision_weights(model: CLIP) -> dict[str, Tensor]:
    """The image tower under the names of Hugging Face's CLIPVisionModel."""
    state = {name.removeprefix("visual."): t for name, t in model.state_dict().items() if name.startswith("visual.")}
    out = {
        "embeddings.class_embedding": state["class_embedding"],
        "embeddings.patch_embedding.weight": state["conv1.weight"],
        "embeddings.position_embedding.weight": state["positional_embedding"],
    }
    for ours, theirs in (("ln_pre", "pre_layrnorm"), ("ln_post", "post_layernorm")):
        out |= {f"{theirs}.{kind}": state[f"{ours}.{kind}"] for kind in ("weight", "bias")}
    names = {
        "attn.out_proj": "self_attn.out_proj",
        "ln_1": "layer_norm1",
        "ln_2": "layer_norm2",
        "mlp.c_fc": "mlp.fc1",
        "mlp.c_proj": "mlp.fc2",
    }
    for i in range(MODEL["vision_cfg"]["layers"]):
        for kind in ("weight", "bias"):
            source, target = f"transformer.resblocks.{i}", f"encoder.layers.{i}"
            out |= {f"{target}.{theirs}.{kind}": state[f"{source}.{ours}.{kind}"] for ours, theirs in names.items()}
            for name, part in zip("qkv", state[f"{source}.attn.in_proj_{kind}"].chunk(3), strict=True):
                out[f"{target}.self_attn.{name}_proj.{kind}"] = part
    return out


def llava_config() -> LlavaConfig:
    """The LLaVA's configuration: that tower, 64 image tokens, that language model."""
    vision = MODEL["vision_cfg"]
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=vision["width"],
            intermediate_size=4 * vision["width"],
            num_hidden_layers=vision["layers"],
            num_attention_heads=vision["width"] // vision["head_width"],
            image_size=IMAGE_SIZE,
            patch_size=PATCH,
            hidden_act="gelu",
            projection_dim=MODEL["embed_dim"],
        ),
        text_config=LlamaConfig(**LANGUAGE),
        image_token_index=IMAGE_TOKEN,
        image_seq_length=PATCHES,
        projector_hidden_act="gelu",
        vision_feature_select_strategy="default",
        vision_feature_layer=FEATURE_LAYER,
        tie_word_embeddings=True,
        **TOKEN_IDS,
    )
    config.architectures = ["LlavaForConditionalGeneration"]
    return config


def export_llava(clip: CLIP, model: Llava, folder: Path) -> None:
    """Writes the Hugging Face folder; weights under the hub's names for LLaVA 1.5, which vLLM reads too."""
    folder.mkdir(parents=True, exist_ok=True)
    llava_config().save_pretrained(folder)
    GenerationConfig(
        **TOKEN_IDS,
        do_sample=False,
        max_new_tokens=64,
    ).save_pretrained(folder)
    tensors = {f"vision_tower.vision_model.{name}": t for name, t in vision_weights(clip).items()}
    tensors |= {f"language_model.model.{name}": t for name, t in model.language.state_dict().items()}
    for name in ("linear_1", "linear_2"):
        for kind in ("weight", "bias"):
            tensors[f"multi_modal_projector.{name}.{kind}"] = getattr(getattr(model, name), kind)
    _save(tensors, folder / "model.safetensors")
    save_tokenizer(folder, chat=True)
    _write_processor(folder)


def _write_processor(folder: Path) -> None:
    """Image and text processor: squash to 64 × 64, normalise, one `<image>` becomes 64 tokens."""
    image = {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        "resample": 3,
        "do_center_crop": False,
        "crop_size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(MEAN),
        "image_std": list(STD),
    }
    _write_json(folder / "preprocessor_config.json", image)
    processor = {
        "processor_class": "LlavaProcessor",
        "image_token": "<image>",
        "patch_size": PATCH,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    }
    _write_json(folder / "processor_config.json", processor)


def torch_device(name: str) -> torch.device:
    """The device of that name; "auto" is the GPU where there is one."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
