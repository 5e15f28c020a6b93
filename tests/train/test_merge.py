"""``python -m train.merge`` on files from anywhere: what it writes, what it refuses, what it leaves behind."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters_store.paths import PROJECT_ROOT
from train.merge import main
from train.merging.ataf import fused
from train.merging.command.adapter_files import AdapterFile
from train.merging.command.checkpoints import INDEX, WHOLE
from train.merging.command.output_folder import output_folder
from train.models.clip import ResidentClip
from train.models.lora import LoraOptions, lora_files
from train.models.vision_lora import VisionLoraOptions, initial_vision_lora, vision_lora_files
from train.tensors import Tensors

LLAVA = PROJECT_ROOT / "bases" / "tiny" / "llava"
CLIP = PROJECT_ROOT / "bases" / "tiny" / "clip"
QUERY = "language_model.model.layers.0.self_attn.q_proj.weight"


def noise(tensor: torch.Tensor, scale: float, seed: int) -> torch.Tensor:
    return scale * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed))


def put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def loras(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two LoRAs of the LLaVA's, of different ranks."""
    weights = load_file(LLAVA / WHOLE)
    folders = []
    for seed, rank in enumerate((4, 3)):
        tensors: Tensors = {}
        for name, weight in weights.items():
            if name.startswith("language_model") and name.endswith(("q_proj.weight", "down_proj.weight")):
                module = "base_model.model.model." + name.replace("model.model", "model").removesuffix(".weight")
                tensors[f"{module}.lora_A.weight"] = noise(torch.zeros(rank, weight.shape[1]), 0.3, seed)
                tensors[f"{module}.lora_B.weight"] = noise(torch.zeros(len(weight), rank), 0.3, seed + 9)
        options = LoraOptions(rank=rank, alpha=2 * rank, targets=("q_proj", "down_proj"))
        folder = tmp_path_factory.mktemp("loras") / f"lora-{seed}"
        folders.append(put(folder, lora_files(options, str(LLAVA), tensors)))
    return folders


def tuned(base: Path, folder: Path, seed: int) -> Path:
    """A copy of the base with every weight moved."""
    shutil.copytree(base, folder)
    weights = load_file(base / WHOLE)
    moved = {n: (w.float() + noise(w, 0.1, seed) * float(w.float().abs().mean())).half() for n, w in weights.items()}
    save_file(moved, folder / WHOLE, metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two LLaVAs tuned away from the base."""
    return [tuned(LLAVA, tmp_path_factory.mktemp("models") / f"model-{seed}", seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A base with one layer of each part of the LLaVA, and two models tuned from it; the second lies in two files."""
    root = tmp_path_factory.mktemp("small")
    shutil.copytree(LLAVA, root / "base")
    weights = load_file(LLAVA / WHOLE)
    save_file({n: w for n, w in weights.items() if "layers.0." in n or "projector" in n}, root / "base" / WHOLE)
    folders = [root / "base", *(tuned(root / "base", root / f"model-{seed}", seed) for seed in (1, 2))]
    folder, moved = folders[-1], load_file(folders[-1] / WHOLE)
    names = sorted(moved)
    (folder / WHOLE).unlink()
    weight_map = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(names)}
    for file in set(weight_map.values()):
        part = {name: moved[name] for name in names if weight_map[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folders


def merge(method: str, inputs: list[Path], out: Path, *more: str, base: Path = LLAVA) -> int:
    given = ["--method", method, "--base", str(base), "--adapters", *map(str, inputs), "--out", str(out), *more]
    return main(given)


def delta(adapter: AdapterFile, module: str) -> torch.Tensor:
    b, a = adapter[module]
    return b.double() @ a.double()


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("mean", ()),
        ("ataf", ("--alpha", "0.3")),
        ("scaled", ("--factor", "0.5")),
        ("ties", ("--scope", "tensor")),
        ("dare", ("--density", "1")),
        ("knots", ()),
        ("magnitude", ("--ratio", "0")),
        ("random", ("--ratio", "0", "--space", "delta")),
    ],
)
def test_adapters_are_merged(
    method: str, more: tuple[str, ...], loras: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge(method, loras, tmp_path / "out", *more) == 0
    merged, a, b = AdapterFile(tmp_path / "out"), *map(AdapterFile, loras)
    assert merged.names == a.names
    assert merged.rank == 7
    assert "8 modules of rank 7" in capsys.readouterr().out
    for module in merged.names:
        tau_a, tau_b = delta(a, module), delta(b, module)
        mean = (tau_a + tau_b) / 2
        expected = {"ataf": fused(tau_a, tau_b, 0.3), "scaled": mean / 2}.get(method, mean)
        if method not in ("ties", "knots"):
            torch.testing.assert_close(delta(merged, module), expected, rtol=1e-4, atol=1e-5)


def test_methods_on_factors_and_recompression(
    loras: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge("robust", [loras[0], loras[0]], tmp_path / "robust") == 0
    assert merge("factor_mean", [loras[0], loras[0]], tmp_path / "same", "--dtype", "bfloat16") == 0
    same, own = AdapterFile(tmp_path / "same"), AdapterFile(loras[0])
    torch.testing.assert_close(delta(same, own.names[0]), delta(own, own.names[0]), rtol=0.02, atol=0.02)
    assert merge("mean", loras, tmp_path / "rank-2", "--rank", "2") == 0
    assert AdapterFile(tmp_path / "rank-2").rank == 2
    assert "relative error of rank 2: " in capsys.readouterr().out


def test_a_merged_adapter_loads_with_peft(loras: list[Path], tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import LlavaForConditionalGeneration

    assert merge("ataf", loras, tmp_path / "out") == 0
    model: Any = LlavaForConditionalGeneration.from_pretrained(LLAVA, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(model, str(tmp_path / "out"))
    merged = AdapterFile(tmp_path / "out")
    for module in merged.names:
        found = loaded.get_submodule(module).get_delta_weight("default")
        torch.testing.assert_close(found, delta(merged, module).float(), rtol=1e-4, atol=1e-5)


def test_sap_keeps_the_anchored_entries_of_vision_adapters(resident: Any, tmp_path: Path) -> None:
    clip = resident("promptfl")
    assert isinstance(clip, ResidentClip)
    inputs = []
    for seed in (1, 2):
        start = initial_vision_lora(clip, VisionLoraOptions(rank=2, alpha=2), seed)
        tensors = {name: t + noise(t, 0.02, seed) for name, t in start.items()}
        inputs.append(put(tmp_path / f"client-{seed}", vision_lora_files("clip", tensors, 1.0)))
    assert merge("sap", inputs, tmp_path / "all", "--ratio", "0", "--anchor-count", "4", base=CLIP) == 0
    assert merge("mean", inputs, tmp_path / "mean") == 0
    assert merge("sap", inputs, tmp_path / "few", "--ratio", "0.9", "--anchor-count", "4", base=CLIP) == 0
    whole, mean, few = (AdapterFile(tmp_path / name) for name in ("all", "mean", "few"))
    entries = kept = 0
    for module in mean.names:
        torch.testing.assert_close(delta(whole, module), delta(mean, module))
        entries += sum(factor.numel() for factor in few[module])
        kept += sum(int(factor.count_nonzero()) for factor in few[module])
    assert kept == entries - 2 * (int(0.9 * entries) // 2)  # ⌊ρ n⌋ of each client's


def test_sap_and_the_chosen_alpha_on_a_language_model(
    loras: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--anchor-count", "2")
    assert merge("sap", loras, tmp_path / "sap", "--space", "delta", "--rank", "3", *few) == 0
    assert AdapterFile(tmp_path / "sap").rank == 3
    assert merge("ataf", loras, tmp_path / "ataf", "--alpha", "jsd", *few) == 0
    assert "of smallest mean JSD to both (0.1: " in capsys.readouterr().out


@pytest.mark.parametrize("method", ["ataf", "mean", "scaled", "ties", "dare", "magnitude", "random"])
def test_full_checkpoints_are_merged(method: str, small: list[Path], tmp_path: Path) -> None:
    more = {"scaled": ["--factor", "0.5"], "magnitude": ["--ratio", "0.5"]}
    from_base, other, split = small
    assert merge(method, [split, other], tmp_path / "out", *more.get(method, []), base=from_base) == 0
    base, second = load_file(from_base / WHOLE), load_file(other / WHOLE)
    first = {n: t for file in split.glob("*.safetensors") for n, t in load_file(file).items()}
    merged = {n: t for file in (tmp_path / "out").glob("*.safetensors") for n, t in load_file(file).items()}
    assert {n: (t.shape, t.dtype) for n, t in merged.items()} == {n: (t.shape, t.dtype) for n, t in first.items()}
    files = {path.name for path in split.iterdir()}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files
    a, b = (w[QUERY].double() - base[QUERY].double() for w in (first, second))
    if method in ("ataf", "mean", "scaled"):
        tau = fused(a, b, 0.5) if method == "ataf" else (a + b) / (2 if method == "mean" else 4)
        torch.testing.assert_close(merged[QUERY], (base[QUERY].double() + tau).half(), rtol=0, atol=0)
    if method == "ataf":  # what is not the language model's is the first model's
        outside = [name for name in merged if not name.startswith("language_model")]
        assert all(torch.equal(merged[name], first[name]) for name in outside)
        assert len(outside) > 15


def test_merged_checkpoints_load_with_transformers(
    models: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import LlavaForConditionalGeneration

    more = ("--alpha", "jsd", "--anchor-count", "2", "--dtype", "bfloat16")
    assert merge("ataf", models, tmp_path / "out", *more) == 0
    assert "alpha 0." in capsys.readouterr().out
    _, loading = LlavaForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert load_file(tmp_path / "out" / WHOLE)[QUERY].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("method", "more", "said"),
    [
        ("best", (), "--method: Input should be 'sap'"),
        ("mean", ("--ratio", "0.5"), "--ratio: not an option of method mean, which takes none of its own"),
        ("ties", ("--alpha", "0.5"), "--alpha: not an option of method ties, which takes --density, --scope, --factor"),
        ("magnitude", ("--ratio", "2"), "--ratio: Input should be less than or equal to 1 (found '2')"),
        ("ataf", ("--alpha", "1.5"), "--alpha: found 1.5, allowed are 0 to 1 and jsd"),
        ("scaled", (), "--factor: missing"),
        ("factor_mean", (), "adapter 2 has rank 3, adapter 1 4"),
        ("mean", ("--color", "red"), "unrecognized arguments: --color red"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    method: str, more: tuple[str, ...], said: str, loras: list[Path], tmp_path: Path, capsys: Any
) -> None:
    assert merge(method, loras, tmp_path / "out", *more) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_do_not_fit_are_refused(
    loras: list[Path], small: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "out"
    for method, inputs, said in (
        ("mean", [loras[0], small[1]], "are an adapter and a full checkpoint"),
        ("mean", [tmp_path / "nothing"], "does not exist"),
        ("ataf", [loras[0]], "found 1, method ataf merges exactly two"),
        ("knots", small, "knots merges adapters alone"),
        ("sap", small, "sap merges adapters alone"),
    ):
        assert merge(method, inputs, other) == 2
        assert said in capsys.readouterr().err
    assert merge("mean", small, other, "--rank", "2") == 2
    assert "--rank: is for adapters" in capsys.readouterr().err
    assert merge("mean", loras, loras[0]) == 2
    assert "exists; name a folder that does not" in capsys.readouterr().err
    assert merge("mean", loras, tmp_path / "nowhere" / "out") == 2
    assert "nowhere, in which out is to be, is no folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_merge_that_fails_half_way_leaves_nothing(small: list[Path], tmp_path: Path, capsys: Any) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(small[1], broken)
    tensors = load_file(broken / WHOLE)
    tensors[sorted(tensors)[-1]][0] = float("nan")
    save_file(tensors, broken / WHOLE)
    assert merge("mean", [small[1], broken], tmp_path / "out", base=small[0]) == 2
    assert "not finite" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_a_merge_that_is_ended_leaves_nothing(models: list[Path], tmp_path: Path) -> None:
    command = ["--method", "ties", "--base", LLAVA, "--adapters", *models, "--out", tmp_path / "out"]
    process = subprocess.Popen([sys.executable, "-m", "train.merge", *map(str, command)], cwd=PROJECT_ROOT)
    try:
        while not (tmp_path / ".out.partial").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_merge_left_is_removed_by_the_next_but_not_what_another_is_writing(
    loras: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / ".out.partial", {"adapter_model.safetensors": b"half", "stale.json": b"{}"})
    with output_folder(tmp_path / "busy"):
        assert merge("mean", loras, tmp_path / "busy") == 2
        assert "is being written by another process" in capsys.readouterr().err
    assert merge("mean", loras, tmp_path / "out") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["busy", "out"]
    assert not (tmp_path / "out" / "stale.json").exists()
