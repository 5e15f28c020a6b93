"""The base a run names, loaded once in this process."""

from collections.abc import Sequence
from pathlib import Path

import torch

from adapters_store.bases.llava import find_llava
from adapters_store.paths import resolve
from train.models.clip import ResidentClip, ZeroShotClassifier
from train.models.interfaces import Personal, ResidentModel
from train.models.lora import LoraPersonal
from train.models.mllm import Mllm
from train.sections import BaseConfig


def load_resident(
    base: BaseConfig, family: str, device: torch.device | str = "cpu", *, max_new_tokens: int = 32
) -> Mllm | ResidentClip:
    """The frozen base of this family, on the device; a LLaVA answers at most so many tokens. ValueError or
    FileNotFoundError where it is not understood."""
    cache_folder = None if base.cache_folder is None else Path(base.cache_folder)
    if family == "clip":
        folder = resolve(base.path)
        return ResidentClip(
            base.path,
            folder if folder.is_dir() else base.path,
            device,
            pretrained=base.pretrained,
            zero_shot_template=base.zero_shot_template,
            cache_mib=base.cache_mib,
            cache_folder=cache_folder,
        )
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[base.dtype]
    return Mllm(
        base.path,
        find_llava(base.path),
        load_in_4bit=base.load_in_4bit,
        dtype=dtype,
        device=device,
        max_new_tokens=max_new_tokens,
        cache_mib=base.cache_mib,
        cache_folder=cache_folder,
    )


def zero_shot(model: ResidentModel, class_names: Sequence[str]) -> Personal:
    """The base itself, nothing personal on it: the first reference row of every table."""
    if isinstance(model, ResidentClip):
        return ZeroShotClassifier(model, class_names)
    assert isinstance(model, Mllm)
    return LoraPersonal(model, None, {})
