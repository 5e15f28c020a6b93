"""``python -m train.publish``: adapters that were made elsewhere, verified against the base, published and answered."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters_store.bases.frozen import base_id
from adapters_store.paths import PROJECT_ROOT
from adapters_store.store import Store
from tests.serve.artefacts import CLASSES, CLIP, LLAVA, lora_files
from tests.serve.live import LiveGateway
from tests.train.merge.made import llava_loras, merge, put
from train.merge.adapter_config import CONFIG, WEIGHTS
from train.merge.adapter_files import AdapterFile
from train.publish.folder import main


def publish(folder: Path, store: Path, *more: str, client: str = "ann") -> int:
    return main([str(folder), "--client", client, "--store", str(store), *more])


def products(folder: Path) -> dict[str, torch.Tensor]:
    """The update of every module, in float64."""
    adapter = AdapterFile(folder)
    return {name: b.double() @ a.double() for name, (b, a) in ((name, adapter[name]) for name in adapter.names)}


@pytest.fixture
def lora(tmp_path: Path) -> Path:
    """A folder of PEFT's with a pattern for target modules, α twice the rank, and a weight file in half precision."""
    folder = put(tmp_path / "from-elsewhere", lora_files(3))
    weights = {name: tensor.half() for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(weights, folder / WEIGHTS)
    return folder


def test_a_folder_of_pefts_is_published_as_it_computes(
    lora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(lora, tmp_path / "store", "--method", "by hand") == 0
    store = Store(tmp_path / "store")
    live = store.live("ann")
    assert live is not None
    assert capsys.readouterr().out == f"published ann@{live.version} to {store.root}\n"
    artefact = store.verify("ann", live.version, base_id=base_id(LLAVA, "nf4"), max_rank=4)
    assert (artefact.manifest.family, artefact.manifest.method, artefact.manifest.rank) == ("mllm", "by hand", 4)
    found, expected = products(artefact.path), products(lora)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)  # α/r is 2, which loses no bit


def test_it_is_answered_at_once(lora: Path, gateway: LiveGateway) -> None:
    assert publish(lora, gateway.store.root, client="made-elsewhere") == 0
    live = gateway.store.live("made-elsewhere")
    assert live is not None
    gateway.wait_for("made-elsewhere", live.version)
    assert gateway.ask("made-elsewhere", "what color is the circle?")["fedtailor"]["version"] == live.version


def test_what_merging_wrote_is_published(tmp_path: Path) -> None:
    assert merge("mean", llava_loras(tmp_path), tmp_path / "merged") == 0
    assert publish(tmp_path / "merged", tmp_path / "store", "--no-activate", client="global") == 0
    store = Store(tmp_path / "store")
    assert store.live("global") is None
    [version] = store.versions("global")
    artefact = store.verify("global", version)
    assert artefact.manifest.role == "global"
    assert products(artefact.path).keys() == products(tmp_path / "merged").keys()


def vision(folder: Path, width: int = 192) -> Path:
    """A LoRA on the embedded CLIP's vision tower."""
    module = "base_model.model.visual.transformer.resblocks.0.mlp.c_fc"
    tensors = {f"{module}.lora_A.weight": torch.ones(2, width), f"{module}.lora_B.weight": torch.ones(768, 2)}
    folder.mkdir()
    save_file(tensors, folder / WEIGHTS)
    said = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": [module.removeprefix("base_model.model.")]}
    (folder / CONFIG).write_text(json.dumps(said))
    return folder


def test_a_lora_of_a_clip_answers_with_the_classes_that_are_named(tmp_path: Path) -> None:
    assert publish(vision(tmp_path / "v"), tmp_path / "store", "--base", str(CLIP), "--classes", *CLASSES) == 0
    store = Store(tmp_path / "store")
    live = store.live("ann", "clip")
    assert live is not None
    manifest = store.verify("ann", live.version, base_id=base_id(CLIP, None)).manifest
    assert (manifest.family, manifest.class_names) == ("clip", CLASSES)


def dora(folder: Path) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"use_dora": True}))


def narrower(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    name = next(name for name in tensors if "lora_A" in name)
    save_file(tensors | {name: tensors[name][:, :-8].contiguous()}, folder / WEIGHTS)


def infinite(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file({name: torch.full_like(tensor, torch.inf) for name, tensor in tensors.items()}, folder / WEIGHTS)


@pytest.mark.parametrize(
    ("change", "more", "reason"),
    [
        (dora, (), "use_dora is True"),
        (narrower, (), "has shape [4, 696] where the base needs [4, 704]"),
        (infinite, (), "not finite"),
        (lambda folder: (folder / CONFIG).unlink(), (), "one with adapter_config.json and adapter_model.safetensors"),
        (None, ("--classes", "a"), "--classes: are for a LoRA of a CLIP"),
        (None, ("--base", str(CLIP)), "--classes: missing"),
        (None, ("--base", str(CLIP), "--classes", "a", "b"), "is no linear in a block of an open_clip vision tower"),
        (None, ("--base", "/nowhere"), "is no folder"),
        (None, ("--client", "A B"), "client id 'A B' is not allowed"),
        (None, ("--prompt-template", "{{ oh"), "prompt_template"),
        (None, ("--quantization", "int8"), "--quantization: invalid choice"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    change: Any, more: tuple[str, ...], reason: str, lora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if change is not None:
        change(lora)
    assert publish(lora, tmp_path / "store", *more) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.startswith("python -m train.publish: ")
    assert said.count("\n") == 1
    assert not list((tmp_path / "store").rglob("*.safetensors"))


def test_the_command_itself(lora: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "train.publish", str(lora), "--client", "ann", "--store", str(tmp_path / "store")]
    said = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True).stdout
    assert said.startswith("published ann@")
