"""LoRA (Hu et al. 2022) on the vision tower of an open_clip ViT: one definition, for trainer and gateway.

Files and tensor names are PEFT's. Its module for ``nn.MultiheadAttention`` holds the LoRA of in_proj itself, and that
of out_proj under ``base_layer``. PEFT up to 0.21.2 adds the latter's update twice (huggingface/peft#3774); here it is
added once, so such a file has the same features there only while it has no out_proj.

Letters: B, A the factors (d_out, r), (r, d_in) of ΔW = BA, with the scale in B; n images, D joint embedding width.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import torch.nn.functional as F
from safetensors.torch import load
from torch import Tensor, nn

from adapters_store.personal.adapted_tower import Delta, Factors, adapted
from adapters_store.personal.clip import Clip

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX: Final = "base_model.model.visual."
LINEARS: Final = {
    "attn": "attn.in_proj_weight",
    "attn.base_layer.out_proj": "attn.out_proj.weight",
    "mlp.c_fc": "mlp.c_fc.weight",
    "mlp.c_proj": "mlp.c_proj.weight",
}
"""The weight of every linear of a block, by the end of its module's name in PEFT."""
MODULE: Final = re.compile(re.escape(PREFIX) + rf"(transformer\.resblocks\.\d+\.)({'|'.join(map(re.escape, LINEARS))})")


def weight_of(module: str) -> str:
    """Name in the vision tower of the weight that PEFT's module (``base_model.model.visual.…``) adapts.

    ValueError where it is no linear of a block of the vision tower.
    """
    found = MODULE.fullmatch(module)
    if found is None:
        raise ValueError(f"module {module} of {WEIGHTS} is no linear in a block of an open_clip vision tower")
    return found[1] + LINEARS[found[2]]


def vision_deltas(tensors: Mapping[str, Tensor], scale: float) -> dict[str, Factors]:
    """(B, A) by name of the weight in ``clip.model.visual``, from PEFT's tensors; the scale is folded into B.

    Differentiable in the tensors. ValueError where one is for no linear of a block, or its other half is missing.
    """
    deltas = {}
    for name in tensors:
        module, _, side = name.partition(".lora_")
        if side not in ("A.weight", "B.weight"):
            raise ValueError(f"tensor {name} of {WEIGHTS} is no LoRA factor: only lora_A and lora_B weights are")
        a, b = tensors.get(f"{module}.lora_A.weight"), tensors.get(f"{module}.lora_B.weight")
        if a is None or b is None:
            raise ValueError(f"module {module} of {WEIGHTS} has no pair of lora_A and lora_B")
        deltas[weight_of(module)] = (scale * b, a)
    return deltas


def image_features(clip: Clip, deltas: Mapping[str, Delta], pixels: Tensor) -> Tensor:
    """L2-normalised features (n, D) of pixels (n, 3, size, size) through the tower with W + ΔW, by weight name.

    Differentiable in the deltas.
    """
    return F.normalize(adapted(clip.model.visual, deltas)(pixels), dim=-1)


def check_vision_fit(clip: Clip, deltas: Mapping[str, Factors]) -> None:
    """ValueError with one sentence where the base's tower cannot take these deltas."""
    weights = linear_weights(clip)
    for name, (b, a) in sorted(deltas.items()):
        if name not in weights:
            raise ValueError(f"{WEIGHTS} adapts {name}, which the base's vision tower does not have")
        found, wanted = (b.shape[0], a.shape[1]), tuple(weights[name].shape)
        if found != wanted:
            raise ValueError(f"{WEIGHTS} changes {name} as of shape {list(found)} where the base has {list(wanted)}")


def linear_weights(clip: Clip) -> dict[str, Tensor]:
    """The weights that an adapter may change, by name in the tower; ValueError where it is not open_clip's own ViT."""
    from open_clip.transformer import VisionTransformer  # slow to import

    visual: Any = clip.model.visual
    plain = type(visual) is VisionTransformer and not visual.output_tokens
    if not plain or any(type(block.attn) is not nn.MultiheadAttention for block in visual.transformer.resblocks):
        raise ValueError(
            f"base: a LoRA on the vision tower needs open_clip's VisionTransformer with torch's attention; "
            f"found {type(visual).__name__}"
        )
    blocks = [f"transformer.resblocks.{i}." for i in range(len(visual.transformer.resblocks))]
    return {block + end: visual.get_parameter(block + end) for block in blocks for end in LINEARS.values()}


def read_vision_lora(files: Mapping[str, bytes]) -> tuple[dict[str, Tensor], float]:
    """The tensors of a version's files in float32, and their scale: α/r, or α/√r of rsLoRA."""
    config = json.loads(files[CONFIG])
    rank = config["r"]
    scale = config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return {name: tensor.float() for name, tensor in load(files[WEIGHTS]).items()}, scale
