"""What ``python -m train.merge`` can be told; checked before anything is read."""

import math
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

Method = Literal[
    "sap", "anchored", "ataf", "mean", "factor_mean", "scaled", "ties", "dare", "knots", "robust", "magnitude", "random"
]
_PRUNING: Final = ("ratio", "scope", "space", "rescale")
_ON_ANCHORS: Final = ("anchors", "anchor_count", "seed", "pretrained")
TAKES: Final[dict[Method, tuple[str, ...]]] = {
    "sap": (*_PRUNING, *_ON_ANCHORS, "load_in_4bit"),
    "anchored": ("steps", "lr", "gain", *_ON_ANCHORS),
    "ataf": ("alpha", *_ON_ANCHORS, "load_in_4bit"),
    "mean": (),
    "factor_mean": (),
    "scaled": ("factor",),
    "ties": ("density", "scope", "factor"),
    "dare": ("density", "seed"),
    "knots": ("density", "scope", "factor"),
    "robust": ("density", "factor"),
    "magnitude": _PRUNING,
    "random": (*_PRUNING, "seed"),
}
"""The options of each method, beside those of all."""
ASKING: Final = ("sap", "anchored")
"""Methods that run the base on the anchors, whatever their options."""
OF_ALL: Final = ("method", "adapters", "base", "out", "rank", "dtype")
DENSITIES: Final = {"ties": 0.2, "knots": 0.2, "robust": 0.2, "dare": 0.1}
FACTORS: Final = {"ties": 1.0, "knots": 1.0, "robust": 2.0}


def _share(value: object) -> float | Literal["jsd"]:
    if value == "jsd":
        return "jsd"
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise ValueError("allowed are a number from 0 to 1 and jsd")
    return number


class MergeOptions(BaseModel):
    """One merge. Options that its method does not take are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    method: Method = Field(description="how to merge; train/merging has a file for each")
    adapters: tuple[Path, ...] = Field(
        min_length=1,
        description="what to merge, in order: PEFT folders or their adapter_model.safetensors, other .safetensors with"
        " lora_A and lora_B tensors (scale 1), or full checkpoints: folders of a model's .safetensors, one or many",
    )
    base: str | None = Field(
        None,
        description="folder of the model that all were tuned from (or a CLIP's name in open_clip); needed for full"
        " checkpoints, for sap, anchored and --alpha jsd",
    )
    out: Path = Field(description="folder to write; must not exist")
    rank: int | None = Field(
        None, ge=1, le=4096, description="adapters: recompress to this rank; the error is printed (default: exact)"
    )
    dtype: Literal["float32", "float16", "bfloat16"] | None = Field(
        None, description="of the written tensors (default: adapters float32, checkpoints the first one's)"
    )
    ratio: float = Field(0.95, ge=0, le=1, description="sap, magnitude, random: share of entries set to zero")
    scope: Literal["global", "tensor"] = Field(
        "global", description="count that share, or the density, over all or in each tensor"
    )
    space: Literal["factors", "delta"] = Field(
        "factors",
        description="sap, magnitude, random: mask B and A, or BA; sap then holds in memory, of every adapter, a dense"
        " gradient of every layer: as many numbers as the adapted weights, times the adapters",
    )
    rescale: Literal["none", "norm", "robust"] = Field("none", description="sap, magnitude, random: after masking")
    density: float | None = Field(
        None, gt=0, le=1, description="ties, knots, robust, dare: share kept (default: .2, dare .1)"
    )
    factor: float | None = Field(
        None, description="scaled: what the mean is multiplied by; ties, knots, robust: λ (default: 1, robust 2)"
    )
    alpha: Annotated[float | Literal["jsd"], PlainValidator(_share)] = Field(
        0.5,
        description="ataf: share of the second model, 0 to 1, or jsd: chosen by what the merge predicts of the anchors,"
        " where a LLaVA's two models give their own answers, or a CLIP's choice of caption",
    )
    steps: int = Field(40, ge=1, description="anchored: of Adam on the coefficients")
    lr: float = Field(0.05, gt=0, description="anchored: its learning rate")
    gain: float = Field(1.6, gt=0, description="anchored: multiplies the fitted coefficients")
    anchors: str = Field(
        "embedded", description="sap, anchored, --alpha jsd: embedded, a folder of images with .txt, or COCO's folder"
    )
    anchor_count: int = Field(32, ge=1, le=1024, description="how many anchors")
    seed: int = Field(0, ge=0, description="random, dare, anchors and their corruption")
    pretrained: str | None = Field(None, description="weights of a CLIP named in --base: open_clip's tag, or a file")
    load_in_4bit: bool = Field(True, description="sap, --alpha jsd on a LLaVA with adapters: NF4, as in training")

    @model_validator(mode="after")
    def _fits_method(self) -> "MergeOptions":
        takes = TAKES[self.method]
        for name in type(self).model_fields:
            if name in self.model_fields_set and name not in (*OF_ALL, *takes):
                allowed = ", ".join(option(name) for name in takes) or "none of its own"
                raise ValueError(f"{option(name)}: not an option of method {self.method}, which takes {allowed}")
        if self.method == "ataf" and len(self.adapters) != 2:
            raise ValueError(f"--adapters: found {len(self.adapters)}, method ataf merges exactly two")
        if self.method == "scaled" and self.factor is None:
            raise ValueError("--factor: missing; method scaled multiplies the mean by it")
        if self.base is None and (self.method in ASKING or self.alpha == "jsd"):
            asking = ", ".join(ASKING)
            raise ValueError(f"--base: missing; {asking} and --alpha jsd run the model that the adapters belong to")
        return self

    @property
    def kept(self) -> float:
        """The density, or the method's own."""
        return DENSITIES[self.method] if self.density is None else self.density

    @property
    def multiplier(self) -> float:
        """The factor, or the method's own."""
        return FACTORS[self.method] if self.factor is None else self.factor


def option(field: str) -> str:
    """A field as it is written on the command line."""
    return f"--{field.replace('_', '-')}"
