"""What the command asks of a base: SAP's gradients, anchored merging's loss, ATAF's α; and anchors that do not fit."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.floats import check_close
from tests.train.merge.made import CLIP, delta, llava_loras, merge, noise, put
from train.data.anchors import AnchorOptions, anchors
from train.merge.adapter_files import AdapterFile
from train.merge.options import MergeOptions
from train.merging.adapter import Adapter, write_adapter
from train.merging.anchored import anchored
from train.merging.ataf import ataf
from train.merging.ataf_alpha import choose_alpha
from train.merging.sap import sap, sap_delta
from train.methods.anchored import AnchoredOptions
from train.models.alignment_gradients import alignment_gradients
from train.models.answers import delta_gradients, factor_gradients, predictions
from train.models.captions import Captions
from train.models.clip import ResidentClip
from train.models.mllm import Mllm
from train.models.vision_lora import VisionLoraOptions, initial_vision_lora, vision_lora_files
from train.tensors import generator

pytestmark = pytest.mark.numeric

FACTORS = 768  # additions in a product of factors: no layer is wider
FEW = ("--anchor-count", "4", "--seed", "3")


@pytest.fixture(scope="module")
def towers(clip: ResidentClip, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two LoRAs of CLIP's vision tower."""
    root = tmp_path_factory.mktemp("towers")
    folders = []
    for seed in (1, 2):
        start = initial_vision_lora(clip, VisionLoraOptions(rank=2, alpha=2), seed)
        tensors = {name: t + noise(t, 0.02, seed) for name, t in start.items()}
        folders.append(put(root / str(seed), vision_lora_files("clip", tensors, 1.0)))
    return folders


@pytest.fixture(scope="module")
def loras(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return llava_loras(tmp_path_factory.mktemp("loras"))


def same(out: Path, expected: Adapter) -> None:
    merged = AdapterFile(out)
    assert merged.names == list(expected)
    for module, (b, a) in expected.items():
        check_close(delta(merged, module), b.double() @ a.double(), FACTORS)


def test_sap_on_a_clip(clip: ResidentClip, towers: list[Path], tmp_path: Path) -> None:
    adapters, examples = [dict(AdapterFile(path)) for path in towers], anchors(AnchorOptions(count=4), "clip", 3)
    tensors = [write_adapter(adapter) for adapter in adapters]
    gradients = [alignment_gradients(clip, one, 1.0, examples, "factors") for one in tensors]
    more = ("--ratio", "0.9", "--scope", "tensor", "--rescale", "norm", *FEW)
    assert merge("sap", towers, tmp_path / "factors", *more, base=CLIP) == 0
    same(tmp_path / "factors", sap(adapters, gradients, ratio=0.9, scope="tensor", rescale="norm"))
    dense = [alignment_gradients(clip, one, 1.0, examples, "delta") for one in tensors]
    more = ("--ratio", "0.7", "--space", "delta", "--rank", "3", *FEW)
    assert merge("sap", towers, tmp_path / "delta", *more, base=CLIP) == 0
    same(tmp_path / "delta", sap_delta(adapters, dense, rank=3, ratio=0.7))


def test_sap_on_a_language_model(mllm: Mllm, loras: list[Path], tmp_path: Path) -> None:
    adapters, examples = [dict(AdapterFile(path)) for path in loras], anchors(AnchorOptions(count=4), "mllm", 3)
    gradients = [factor_gradients(mllm, adapter, examples) for adapter in adapters]
    assert merge("sap", loras, tmp_path / "factors", "--ratio", "0.8", "--rescale", "robust", *FEW) == 0
    same(tmp_path / "factors", sap(adapters, gradients, ratio=0.8, rescale="robust"))
    dense = [delta_gradients(mllm, adapter, examples) for adapter in adapters]
    assert merge("sap", loras, tmp_path / "delta", "--ratio", "0.7", "--space", "delta", "--rank", "3", *FEW) == 0
    same(tmp_path / "delta", sap_delta(adapters, dense, rank=3, ratio=0.7))


@pytest.mark.parametrize("family", ["clip", "mllm"])
def test_alpha_is_the_one_that_the_anchors_predictions_speak_for(
    family: Any, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths: Sequence[Path] = request.getfixturevalue("towers" if family == "clip" else "loras")
    model: Any = request.getfixturevalue(family)
    examples = anchors(AnchorOptions(count=4), family, 3)
    a, b = (dict(AdapterFile(path)) for path in paths)
    logits: Callable[[Adapter], torch.Tensor]
    logits = Captions(model, examples).logits if family == "clip" else predictions(model, examples, a, b)
    alpha, scores = choose_alpha(logits(a), logits(b), lambda share: logits(ataf(a, b, share)))
    base = {"base": CLIP} if family == "clip" else {}
    assert merge("ataf", paths, tmp_path / "out", "--alpha", "jsd", *FEW, **base) == 0
    said = ", ".join(f"{candidate}: {score:.3g}" for candidate, score in scores.items())
    assert f"alpha {alpha}, of smallest mean JSD to both ({said})" in capsys.readouterr().out
    same(tmp_path / "out", ataf(a, b, alpha))


@pytest.mark.parametrize("family", ["clip", "mllm"])
def test_alpha_does_not_look_at_which_text_is_whose(
    family: Any, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every image is given another one's caption: the predictions are unlabelled, so no candidate's score changes."""
    paths: Sequence[Path] = request.getfixturevalue("towers" if family == "clip" else "loras")
    pictured = anchors(AnchorOptions(count=4), "clip", 3)
    said = []
    for shift in (0, 1):
        folder = tmp_path / f"pairs-{shift}"
        folder.mkdir()
        for i, anchor in enumerate(pictured):
            Image.fromarray(anchor.image).save(folder / f"{i}.png")
            (folder / f"{i}.txt").write_text(pictured[(i + shift) % len(pictured)].answer)
        base = {"base": CLIP} if family == "clip" else {}
        more = ("--alpha", "jsd", "--anchors", str(folder), *FEW)
        assert merge("ataf", paths, tmp_path / f"out-{shift}", *more, **base) == 0
        said.append(re.search(r"of smallest mean JSD.*", capsys.readouterr().out)[0])  # type: ignore[index]
    assert said[0] == said[1]


def test_anchored_on_a_clip(clip: ResidentClip, towers: list[Path], tmp_path: Path) -> None:
    adapters = [dict(AdapterFile(path)) for path in towers]
    captions, random = Captions(clip, anchors(AnchorOptions(count=4), "clip", 3)), generator(3, "corrupt")
    expected, coefficients = anchored(adapters, lambda a: captions.loss(a, random), steps=2, lr=0.2, gain=1.3)
    assert float((coefficients / 1.3 - 1).abs().max()) > 0.1
    more = ("--steps", "2", "--lr", "0.2", "--gain", "1.3", *FEW)
    assert merge("anchored", towers, tmp_path / "out", *more, base=CLIP) == 0
    same(tmp_path / "out", expected)


def test_anchored_has_the_federations_defaults() -> None:
    for name in ("steps", "lr", "gain"):
        assert MergeOptions.model_fields[name].default == AnchoredOptions.model_fields[name].default


def test_what_the_base_cannot_be_asked_is_refused(
    towers: list[Path], loras: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert merge("anchored", loras, tmp_path / "out") == 2
    assert "is a LLaVA's, method anchored merges LoRAs of a CLIP's vision tower" in capsys.readouterr().err
    for method, more in (("anchored", ()), ("ataf", ("--alpha", "jsd")), ("sap", ())):
        assert merge(method, loras, tmp_path / "out", *more, base=CLIP) == 2
        assert "is no linear in a block of an open_clip vision tower" in capsys.readouterr().err
    assert merge("sap", towers, tmp_path / "out", base=tmp_path) == 2
    assert "must be a LLaVA's or an open_clip model's folder" in capsys.readouterr().err


def test_of_anchors_that_do_not_fit_the_option_is_named(
    towers: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert merge("sap", towers, tmp_path / "out", "--anchors", str(empty), "--anchor-count", "5", base=CLIP) == 2
    assert f": --anchor-count: found 5, at most 0 are in {empty}" in capsys.readouterr().err
    assert merge("sap", towers, tmp_path / "out", "--anchors", str(tmp_path / "nowhere"), base=CLIP) == 2
    assert ": --anchors: found " in capsys.readouterr().err
