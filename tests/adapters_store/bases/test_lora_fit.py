"""A LoRA for another model is refused, where the engine would load it and answer wrongly."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save_file

from adapters_store.bases.lora_fit import check_linears, linear_shapes
from serve.engine.zero_adapter import write_zero_adapter
from tests.serve.artefacts import LLAVA, lora_files
from tests.serve.artefacts import linear_shapes as named_by_peft


def write(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """A folder with these LoRA tensors."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "adapter_model.safetensors")
    return folder


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    """A LoRA that fits the embedded base."""
    found: dict[str, torch.Tensor] = load(lora_files(0)["adapter_model.safetensors"])
    return found


def test_what_was_made_for_the_base_fits(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    linears = linear_shapes(LLAVA)
    assert sorted(linears.values()) == sorted(named_by_peft().values())
    check_linears(write(tmp_path, tensors), linears)


def test_the_zero_adapter_fits_and_changes_nothing(tmp_path: Path) -> None:
    folder = write_zero_adapter(LLAVA, tmp_path / "zero")
    check_linears(folder, linear_shapes(LLAVA))
    loaded = load((folder / "adapter_model.safetensors").read_bytes())
    assert all(not tensor.any() for tensor in loaded.values())


@pytest.mark.parametrize("side", ["A", "B"])
def test_another_width_is_refused(tmp_path: Path, tensors: dict[str, torch.Tensor], side: str) -> None:
    name = next(name for name in tensors if f"lora_{side}" in name)
    tensors[name] = tensors[name][:, :-8] if side == "A" else tensors[name][:-8]
    with pytest.raises(ValueError, match="where the base needs"):
        check_linears(write(tmp_path, tensors), linear_shapes(LLAVA))


@pytest.mark.parametrize(
    "module",
    [
        "model.language_model.layers.99.self_attn.q_proj",
        "model.vision_tower.vision_model.encoder.layers.0.self_attn.q_proj",
        "model.language_model.embed_tokens",
        "lm_head",
    ],
)
def test_other_modules_are_refused(tmp_path: Path, tensors: dict[str, torch.Tensor], module: str) -> None:
    tensors[f"base_model.model.{module}.lora_A.weight"] = torch.zeros(4, 256)
    with pytest.raises(ValueError, match="no linear layer of the base"):
        check_linears(write(tmp_path, tensors), linear_shapes(LLAVA))
