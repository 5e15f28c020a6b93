"""``python -m train.merge`` on files from anywhere: what it writes, what it refuses, what it leaves behind."""

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
from tests.floats import check_close
from tests.train.merge.made import CLIP, LLAVA, delta, llava_loras, merge, put, small_llavas, tuned
from train.merge.__main__ import main
from train.merge.adapter_files import AdapterFile
from train.merge.model_files import WHOLE
from train.merge.output_folder import output_folder

QUERY = "language_model.model.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def loras(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return llava_loras(tmp_path_factory.mktemp("loras"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two LLaVAs tuned away from the base."""
    return [tuned(LLAVA, tmp_path_factory.mktemp("models") / f"model-{seed}", seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return small_llavas(tmp_path_factory.mktemp("small"))


@pytest.mark.numeric
def test_a_merged_adapter_loads_with_peft(loras: list[Path], tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import LlavaForConditionalGeneration

    assert merge("ataf", loras, tmp_path / "out") == 0
    model: Any = LlavaForConditionalGeneration.from_pretrained(LLAVA, dtype=torch.float32)
    loaded = PeftModel.from_pretrained(model, str(tmp_path / "out"))
    merged = AdapterFile(tmp_path / "out")
    for module in merged.names:
        found = loaded.get_submodule(module).get_delta_weight("default")
        check_close(found, delta(merged, module), merged.rank)


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
        ("ataf", ("--alpha", "1.5"), "--alpha: allowed are a number from 0 to 1 and jsd (found '1.5')"),
        ("ataf", ("--alpha", "abc"), "--alpha: allowed are a number from 0 to 1 and jsd (found 'abc')"),
        ("ataf", ("--alpha", "nan"), "--alpha: allowed are a number from 0 to 1 and jsd (found 'nan')"),
        ("scaled", ("--factor", "nan"), "--factor: Input should be a finite number (found 'nan')"),
        ("ties", ("--factor", "inf"), "--factor: Input should be a finite number (found 'inf')"),
        ("anchored", ("--lr", "inf"), "--lr: Input should be a finite number (found 'inf')"),
        ("anchored", ("--alpha", "0.5"), "not an option of method anchored, which takes --steps, --lr, --gain"),
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
        ("anchored", small, "anchored merges adapters alone"),
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


def test_what_needs_a_base_says_so(loras: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method, more in (("sap", ()), ("anchored", ()), ("ataf", ("--alpha", "jsd"))):
        assert main(["--method", method, "--adapters", *map(str, loras), "--out", str(tmp_path / "out"), *more]) == 2
        assert "--base: missing; sap, anchored and --alpha jsd run the model" in capsys.readouterr().err
    assert merge("ataf", [CLIP, CLIP], tmp_path / "out", "--alpha", "jsd", base=CLIP) == 2
    assert "must be a LLaVA's folder, its kind is None" in capsys.readouterr().err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "--alpha FLOAT|jsd" in said
    assert "holds in memory, of every adapter, a dense gradient of every layer" in said


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
