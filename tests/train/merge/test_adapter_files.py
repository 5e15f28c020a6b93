"""Adapters from anywhere: names and scales as PEFT means them, and a folder that PEFT loads."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from train.merge.adapter_config import CONFIG, WEIGHTS
from train.merge.adapter_files import AdapterFile, is_adapter, write_peft
from train.tensors import Tensors

pytestmark = pytest.mark.numeric


class Small(nn.Module):
    """Two linears for PEFT to adapt."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5, bias=False), nn.Linear(5, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(…, 4) of (…, 6)"""
        return self.second(self.first(x))


def saved(folder: Path, **config: Any) -> Any:
    """PEFT's own folder of a LoRA with random factors, and its model."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model = get_peft_model(Small(), LoraConfig(target_modules=["first", "second"], **config))
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter)
    model.save_pretrained(folder)
    return model


def delta(adapter: AdapterFile, module: str) -> Tensor:
    b, a = adapter[f"base_model.model.{module}"]
    return b @ a


def delta_of(model: Any, module: str) -> Tensor:
    """PEFT's own product of the factors."""
    product: Tensor = model.base_model.get_submodule(f"model.{module}").get_delta_weight("default")
    return product


@pytest.mark.parametrize(
    "config",
    [
        {"r": 2, "lora_alpha": 5},
        {"r": 4, "lora_alpha": 8, "use_rslora": True},
        {"r": 3, "lora_alpha": 4, "rank_pattern": {"second": 2}, "alpha_pattern": {"second": 7}},
    ],
    ids=["plain", "rslora", "patterns"],
)
def test_updates_are_pefts_and_a_written_folder_loads(config: dict[str, Any], tmp_path: Path) -> None:
    from peft import PeftModel

    model = saved(tmp_path / "a", **config)
    adapter = AdapterFile(tmp_path / "a")
    assert is_adapter(tmp_path / "a")
    (tmp_path / "b").mkdir()
    write_peft(tmp_path / "b", adapter, adapter.rank + 1, adapter.items(), base="small")
    loaded = PeftModel.from_pretrained(Small(), tmp_path / "b")
    for module in ("first", "second"):
        wanted = delta_of(model, module)
        torch.testing.assert_close(delta(adapter, module), wanted)
        torch.testing.assert_close(delta_of(loaded, module), wanted)
    assert json.loads((tmp_path / "b" / CONFIG).read_text())["base_model_name_or_path"] == "small"


def test_a_bare_file_has_scale_one_whatever_its_names(tmp_path: Path) -> None:
    b, a = torch.randn(5, 2), torch.randn(2, 6)
    names = {"first.lora_A.weight": a, "first.lora_B.weight": b}
    for rename in ("{}", "base_model.model.{}"):
        for end in (".weight", ".default.weight"):
            tensors = {rename.format(name).replace(".weight", end): tensor for name, tensor in names.items()}
            save_file(tensors, tmp_path / "x.safetensors")
            assert is_adapter(tmp_path / "x.safetensors")
            torch.testing.assert_close(delta(AdapterFile(tmp_path / "x.safetensors"), "first"), b @ a)


def test_weights_named_by_themselves_have_the_scale_of_the_config_beside_them(tmp_path: Path) -> None:
    model = saved(tmp_path / "a", r=2, lora_alpha=5)
    adapter = AdapterFile(tmp_path / "a" / WEIGHTS)
    assert is_adapter(tmp_path / "a" / WEIGHTS)
    torch.testing.assert_close(delta(adapter, "first"), delta_of(model, "first"))
    (tmp_path / "a" / WEIGHTS).rename(tmp_path / "a" / "other.safetensors")  # which the config may not be about
    bare = AdapterFile(tmp_path / "a" / "other.safetensors")
    torch.testing.assert_close(2.5 * delta(bare, "first"), delta_of(model, "first"))


def test_a_merges_config_says_nothing_that_is_not_known_to_be_true_of_it(tmp_path: Path) -> None:
    saved(tmp_path / "a", r=2, lora_alpha=5, init_lora_weights="orthogonal", revision="v1")
    adapter = AdapterFile(tmp_path / "a")
    adapter.config |= {"of_a_later_peft": True, "task_type": "CAUSAL_LM"}
    for base, revision in ((None, "v1"), ("small", None)):
        (folder := tmp_path / str(base)).mkdir()
        write_peft(folder, adapter, 2, adapter.items(), base=base)
        config = json.loads((folder / CONFIG).read_text())
        assert config.keys() & {"of_a_later_peft", "init_lora_weights", "use_rslora"} == set()
        assert (config["r"], config["lora_alpha"], config["task_type"]) == (2, 2, "CAUSAL_LM")
        assert config["revision"] == revision


@pytest.mark.parametrize(
    ("tensors", "config", "said"),
    [
        ({}, {"use_dora": True}, "use_dora is True; merging takes plain LoRA"),
        ({}, {"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens is"),
        ({}, {"arrow_config": {"top_k": 3}}, "arrow_config is"),
        ({}, {"kasa_config": {"beta": 1}}, "kasa_config is"),
        ({}, {"velora_config": {"scale": 1}}, "velora_config is"),
        ({}, {"monteclora_config": {"n": 4}}, "monteclora_config is"),
        ({}, {"peft_type": "IA3"}, "peft_type must be 'LORA'"),
        ({}, {"lora_alpha": None}, "lora_alpha is None, a number is needed"),
        ({}, {"init_lora_weights": "pissa_niter_4"}, "which changes the base itself"),
        ({}, {"init_lora_weights": "lora_ga"}, "which changes the base itself"),
        ({"first.bias": torch.zeros(5)}, {}, r"first\.bias is no LoRA factor"),
        ({"third.lora_B.weight": torch.zeros(5, 2)}, {}, "third has lora_B but no lora_A"),
        ({"third.lora_A.weight": torch.zeros(2, 5)}, {}, r"partner .*third\.lora_B\.weight is missing"),
    ],
)
def test_what_is_no_plain_lora_is_refused(tensors: Tensors, config: dict[str, Any], said: str, tmp_path: Path) -> None:
    factors = {"first.lora_A.weight": torch.zeros(2, 6), "first.lora_B.weight": torch.zeros(5, 2)}
    save_file(factors | tensors, tmp_path / WEIGHTS)
    (tmp_path / CONFIG).write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 2, **config}))
    with pytest.raises(ValueError, match=said):
        dict(AdapterFile(tmp_path))


def test_an_adapter_without_tensors_is_refused(tmp_path: Path) -> None:
    save_file({}, tmp_path / WEIGHTS)
    (tmp_path / CONFIG).write_text(json.dumps({"peft_type": "LORA", "lora_alpha": 2}))
    with pytest.raises(ValueError, match="holds no tensors"):
        AdapterFile(tmp_path)


def test_a_factor_under_two_names_is_refused(tmp_path: Path) -> None:
    a = torch.zeros(2, 6)
    save_file({"x.lora_A.weight": a, "x.lora_A.default.weight": a + 1}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="holds a factor twice"):
        AdapterFile(tmp_path / "x.safetensors")
