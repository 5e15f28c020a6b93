"""The base's identity and its export for serving."""

import json
from pathlib import Path

import pytest
import torch
from bitsandbytes.nn import Params4bit
from safetensors.torch import load_file, save_file

from adapters_store.bases.frozen import QUANTISED, base_id, export_base

pytestmark = pytest.mark.numeric

LINEAR = "language_model.model.layers.0.self_attn.q_proj.weight"
EMBEDDING = "language_model.model.embed_tokens.weight"
TOWER = "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A base of three fp16 tensors, a config, a template and a model card."""
    base = tmp_path / "base"
    base.mkdir()
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(64, 128, generator=generator).half() for name in (LINEAR, EMBEDDING, TOWER)}
    save_file(tensors | {"language_model.steps": torch.arange(3)}, base / "model.safetensors")
    (base / "config.json").write_text(json.dumps({"dtype": "float16", "text_config": {"dtype": "float16", "size": 8}}))
    (base / "chat_template.jinja").write_text("{{ bos_token }}")
    (base / "README.md").write_text("card")
    return base


@pytest.mark.parametrize("linear", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"])  # fmt: skip
@pytest.mark.parametrize("prefix", ["language_model.model.layers.3", "model.language_model.layers.31"])
def test_language_linears_are_quantised(prefix: str, linear: str) -> None:
    assert QUANTISED.search(f"{prefix}.{linear}.weight")


@pytest.mark.parametrize(
    "name",
    [
        TOWER,
        EMBEDDING,
        "language_model.lm_head.weight",
        "language_model.model.norm.weight",
        "language_model.model.layers.0.input_layernorm.weight",
        "language_model.model.layers.0.self_attn.q_proj.bias",
        "multi_modal_projector.linear_1.weight",
    ],
)
def test_nothing_else_is_quantised(name: str) -> None:
    assert not QUANTISED.search(name)


def test_id_is_stable_and_ignores_name_and_card(folder: Path) -> None:
    before = base_id(folder, "nf4")
    (folder / "README.md").write_text("another card")
    assert len(before) == 16
    assert int(before, 16) >= 0
    assert base_id(folder.rename(folder.with_name("moved")), "nf4") == before


@pytest.mark.parametrize("part", ["config.json", "chat_template.jinja", "model.safetensors"])
def test_id_follows_every_part(folder: Path, part: str) -> None:
    before = base_id(folder, "nf4")
    path = folder / part
    path.write_bytes(path.read_bytes() + b" ")
    assert base_id(folder, "nf4") != before


def test_id_tells_quantisation_apart(folder: Path) -> None:
    assert base_id(folder, "nf4") != base_id(folder, None)


def test_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no \.safetensors file"):
        base_id(tmp_path, "nf4")


def test_export_equals_what_a_4bit_layer_of_training_holds(folder: Path, tmp_path: Path) -> None:
    from bitsandbytes.functional import dequantize_4bit

    original = load_file(folder / "model.safetensors")
    exported = load_file(export_base(folder, tmp_path / "out", "nf4") / "model.safetensors")
    trained = Params4bit(original[LINEAR].float(), requires_grad=False, quant_type="nf4").to("cpu")
    assert torch.equal(exported[LINEAR], dequantize_4bit(trained.data, trained.quant_state))
    assert not torch.equal(exported[LINEAR], original[LINEAR].float())
    for name in (EMBEDDING, TOWER):
        assert torch.equal(exported[name], original[name].float())
    assert torch.equal(exported["language_model.steps"], original["language_model.steps"])


def test_export_without_quantisation_only_casts(folder: Path, tmp_path: Path) -> None:
    exported = load_file(export_base(folder, tmp_path / "out", None) / "model.safetensors")
    assert torch.equal(exported[LINEAR], load_file(folder / "model.safetensors")[LINEAR].float())


def test_export_states_its_dtype_and_copies_the_rest(folder: Path, tmp_path: Path) -> None:
    out = export_base(folder, tmp_path / "out", "nf4", dtype="bfloat16")
    config = json.loads((out / "config.json").read_text())
    assert config == {"dtype": "bfloat16", "text_config": {"dtype": "bfloat16", "size": 8}}
    assert (out / "chat_template.jinja").read_text() == "{{ bos_token }}"
    assert load_file(out / "model.safetensors")[LINEAR].dtype == torch.bfloat16


def test_export_is_reused_and_leaves_nothing_partial(folder: Path, tmp_path: Path) -> None:
    first = export_base(folder, tmp_path / "out", "nf4")
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    second = export_base(folder, tmp_path / "out", "nf4")
    assert second == first
    assert (second / "model.safetensors").stat().st_mtime_ns == stamp
    assert [path.name for path in (tmp_path / "out").iterdir()] == [first.name]


def test_failed_export_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(Exception, match=r"(?i)header"):
        export_base(folder, tmp_path / "out", None)
    assert list((tmp_path / "out").iterdir()) == []
