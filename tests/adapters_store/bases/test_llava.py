"""Bases by path and by name: found in Hugging Face's cache without a network, refused where they are something else."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
)

from adapters_store.bases.frozen import base_id, export_base
from adapters_store.bases.llava import chat_template, check_llava, find_llava
from adapters_store.paths import PROJECT_ROOT
from adapters_store.personal.clip import load_clip
from serve.settings import Settings
from tests.serve.artefacts import CLIP, LLAVA
from train.models.mllm import Mllm
from train.models.resident import load_resident
from train.run.command_line import parse

NAME = "llava-hf/llava-1.5-7b-hf"
TINY: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
}
SEEN: dict[str, Any] = {"model_type": "clip_vision_model", "image_size": 28, "patch_size": 14, **TINY}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hugging Face's cache, with the embedded LLaVA in it under the name of a large one: blobs, links, a reference."""
    model = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    snapshot = model / "snapshots" / ("a" * 40)
    for folder in (model / "blobs", model / "refs", snapshot):
        folder.mkdir(parents=True)
    (model / "refs" / "main").write_text("a" * 40)
    for number, path in enumerate(path for path in LLAVA.iterdir() if path.is_file()):
        shutil.copy(path, model / "blobs" / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return snapshot


def test_a_name_is_its_snapshot_in_the_cache(cache: Path) -> None:
    assert find_llava(NAME) == cache
    assert base_id(find_llava(NAME), "nf4") == base_id(LLAVA, "nf4")
    assert find_llava(LLAVA) == LLAVA
    assert Settings(base=Path(NAME)).base == cache


def test_pilots_configuration_loads_as_it_is_written(cache: Path) -> None:
    config, _ = parse(["--config", str(PROJECT_ROOT / "train/configs/paper/pilot_llava15_7b.yaml")])
    assert config.base.path == NAME
    model = load_resident(config.base, "mllm")
    assert isinstance(model, Mllm)
    assert (model.base.id, model.base.name) == (base_id(LLAVA, "nf4"), NAME)


def test_the_cache_is_where_the_environment_says(cache: Path) -> None:
    command = "from adapters_store.bases.llava import find_llava; import sys; print(find_llava(sys.argv[1]))"
    found = subprocess.run(
        [sys.executable, "-c", command, NAME],
        env={"HF_HUB_CACHE": str(cache.parents[2]), "PYTHONPATH": str(PROJECT_ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(cache)


@pytest.mark.parametrize(
    ("name", "reason"), [("org/other", "`hf download org/other`"), ("no such folder/a/b", "no folder")]
)
def test_what_is_not_there_is_a_sentence(cache: Path, name: str, reason: str) -> None:
    with pytest.raises(FileNotFoundError, match=reason):
        find_llava(name)
    with pytest.raises(ValueError, match=reason):
        Settings(base=Path(name))


def altered(folder: Path, **config: Any) -> Path:
    """The embedded LLaVA with other fields in its configuration."""
    shutil.copytree(LLAVA, folder)
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | config))
    return folder


def without(folder: Path, part: str) -> Path:
    """The embedded LLaVA without the tensors whose name holds ``part``."""
    altered(folder)
    path = folder / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(path).items() if part not in name}
    save_file(kept, path, metadata={"format": "pt"})
    return folder


def gemma(folder: Path) -> Path:
    """A tiny Gemma-3, as transformers saves it, with the embedded LLaVA's tokenizer."""
    text = {**TINY, "head_dim": 8, "vocab_size": 704}
    config = Gemma3Config(
        text_config=text, vision_config=SEEN | {"model_type": "siglip_vision_model"}, image_token_index=5
    )
    return saved(Gemma3ForConditionalGeneration(config), folder)


def llava_next(folder: Path) -> Path:
    """A tiny LLaVA-NeXT likewise."""
    text = {**TINY, "model_type": "llama", "vocab_size": 704}
    return saved(LlavaNextForConditionalGeneration(LlavaNextConfig(vision_config=SEEN, text_config=text)), folder)


def saved(model: Any, folder: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "processor_config.json"):
        folder.mkdir(exist_ok=True)
        if (LLAVA / name).exists():
            shutil.copy(LLAVA / name, folder)
    model.save_pretrained(folder)
    return folder


def no_place(folder: Path) -> Path:
    altered(folder)
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'][-1]['text'] }}")
    return folder


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "Gemma-3": (gemma, "is of model_type 'gemma3': only 'llava' is understood"),
    "LLaVA-NeXT": (llava_next, "is of model_type 'llava_next': only 'llava' is understood"),
    "no projector": (lambda f: without(f, "multi_modal_projector.linear_2"), "lacks 2 weights, .*linear_2"),
    "half of a layer": (lambda f: without(f, "layers.1.mlp.up_proj"), "lacks 1 weights, .*layers.1.mlp.up_proj"),
    "other shapes": (lambda f: reshaped(f, "linear_1.weight"), "lacks 1 weights, .*linear_1.weight"),
    "other shapes of a layer": (lambda f: reshaped(f, "layers.1.mlp.up_proj"), "lacks 1 weights, .*up_proj"),
    "no image token": (lambda f: altered(f, image_token_index=9), "its tokenizer has no token 9"),
    "no place for an image": (no_place, "its prompt template has no place for an image"),
}


def reshaped(folder: Path, part: str) -> Path:
    """The embedded LLaVA with one weight of another shape than its configuration says."""
    path = altered(folder) / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if part in name)
    save_file(tensors | {name: torch.zeros(6, 4)}, path, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("kind", REFUSED)
def test_a_base_that_is_not_understood_trains_nothing(kind: str, tmp_path: Path) -> None:
    make, reason = REFUSED[kind]
    with pytest.raises(ValueError, match=reason):
        Mllm("base", make(tmp_path / "base"))


@pytest.mark.parametrize("kind", ["Gemma-3", "LLaVA-NeXT", "no image token"])
def test_nor_does_it_serve(kind: str, tmp_path: Path) -> None:
    make, reason = REFUSED[kind]
    with pytest.raises(ValueError, match=reason):
        Settings(base=make(tmp_path / "base"))


def test_nothing_is_exported_as_4_bit_where_nothing_is(tmp_path: Path) -> None:
    folder = altered(tmp_path / "base")
    tensors = load_file(folder / "model.safetensors")
    others = {name.replace("layers.", "blocks."): tensor for name, tensor in tensors.items()}
    save_file(others, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="has no tensor to quantise"):
        export_base(folder, tmp_path / "out", "nf4")
    assert not (tmp_path / "out").exists()
    assert export_base(folder, tmp_path / "out", None).is_dir()


def test_a_clip_without_all_of_its_weights_is_refused(tmp_path: Path) -> None:
    shutil.copytree(CLIP, tmp_path / "clip")
    path = tmp_path / "clip" / "open_clip_model.safetensors"
    tensors = load_file(path)
    tensors.popitem()
    save_file(tensors, path)
    with pytest.raises(ValueError, match=r"has other weights than its configuration asks for: .*Missing key"):
        load_clip(tmp_path / "clip")


def test_the_template_is_read_where_newer_and_older_folders_keep_it(tmp_path: Path) -> None:
    folder = altered(tmp_path / "base")
    template = chat_template(folder)
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert chat_template(folder) == template
    assert Mllm("base", folder).prompt_template == template
    (folder / "chat_template.json").unlink()
    with pytest.raises(ValueError, match="has no chat template"):
        check_llava(folder)
