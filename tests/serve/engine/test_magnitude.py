"""How much an adapter may change, found from its factors."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

from serve.engine.magnitude import check_magnitude, linear_norms, update_norm
from tests.serve.artefacts import LLAVA, lora_files

MODULE = "layers.1.mlp.up_proj"


def written(folder: Path, files: dict[str, bytes]) -> Path:
    """The folder with these files in it."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def ratio_of(files: dict[str, bytes], module: str, norms: dict[str, float]) -> float:
    """The module's update over its norm, all of BA written out."""
    tensors, config = load(files["adapter_model.safetensors"]), json.loads(files["adapter_config.json"])
    a, b = (tensors[f"base_model.model.model.language_model.{module}.lora_{side}.weight"].double() for side in "AB")
    scale = config["lora_alpha"] / config["r"] ** (0.5 if config.get("use_rslora") else 1)
    return float(scale * (b @ a).norm() / norms[module])


def test_the_norm_of_an_update_is_that_of_the_product() -> None:
    generator = torch.Generator().manual_seed(0)
    b, a = torch.randn(50, 4, generator=generator), torch.randn(4, 30, generator=generator)
    assert update_norm(b, a) == pytest.approx(float((b.double() @ a.double()).norm()), rel=1e-12)
    huge = torch.finfo(torch.float32).max
    assert update_norm(b * 0 + huge, a * 0 + huge) == pytest.approx(4 * huge * huge * 1500**0.5, rel=1e-12)


@pytest.mark.parametrize("rslora", [False, True])
def test_the_bound_is_on_each_linear_with_the_scale(tmp_path: Path, rslora: bool) -> None:
    norms = linear_norms(LLAVA)
    files = lora_files(0)
    tensors = load(files["adapter_model.safetensors"])
    for name in tensors:
        tensors[name] *= 1.0 if MODULE in name else 0.01
    config = json.loads(files["adapter_config.json"]) | {"use_rslora": rslora}
    files = {"adapter_model.safetensors": save(tensors), "adapter_config.json": json.dumps(config).encode()}
    ratio = ratio_of(files, MODULE, norms)
    written(tmp_path, files)
    check_magnitude(tmp_path, norms, ratio * (1 + 1e-6))
    with pytest.raises(ValueError, match=f"it changes {MODULE} by"):
        check_magnitude(tmp_path, norms, ratio * (1 - 1e-6))


def test_adapters_of_every_size_that_is_trained_are_within_the_bound_and_absurd_ones_are_not(tmp_path: Path) -> None:
    norms = linear_norms(LLAVA)
    check_magnitude(written(tmp_path, lora_files(0)), norms, 100)
    with pytest.raises(ValueError, match="at most 100 is served"):
        check_magnitude(written(tmp_path, lora_files(0, size=2)), norms, 100)
