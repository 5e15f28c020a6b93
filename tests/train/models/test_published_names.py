"""What training publishes names its modules, and PEFT's own loader makes of the folder what was trained."""

import copy
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model_state_dict
from transformers import LlavaForConditionalGeneration

from adapters_store.store import Store
from adapters_store.versions.manifest import Manifest
from adapters_store.versions.verify import check_content
from train.models.clip import ResidentClip
from train.models.connected import mllm_artefact
from train.models.interfaces import Artefact
from train.models.lora import LoraOptions, adapt_, lora_parameters
from train.models.mllm import Mllm
from train.models.vision_lora import VisionLoraOptions, initial_vision_lora, vision_lora_artefact
from train.tensors import Tensors

LLAVA = "bases/tiny/llava"
OPTIONS = LoraOptions(rank=2, alpha=4, targets=("q_proj", "down_proj"))
VISION = VisionLoraOptions(rank=2, alpha=4)


def random(shapes: Any) -> Tensors:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(tensor.shape, generator=generator) for name, tensor in sorted(shapes)}


@pytest.fixture
def language(mllm: Mllm) -> tuple[Artefact, Tensors]:
    tensors = random(lora_parameters(adapt_(mllm, OPTIONS)).items())
    return mllm_artefact("personal", mllm, OPTIONS, tensors), tensors


@pytest.fixture
def vision(clip: ResidentClip) -> tuple[Artefact, Tensors]:
    tensors = random(initial_vision_lora(clip, VISION, 0).items())
    return vision_lora_artefact("personal", clip, ["a", "b"], tensors, VISION.scale), tensors


def loaded(base: Any, artefact: Artefact, folder: Path) -> Tensors:
    """The adapter's tensors as PEFT holds them once it has loaded the published files; a warning is an error."""
    for name, data in artefact.files.items():
        (folder / name).write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PeftModel.from_pretrained(base, folder)
    return dict(get_peft_model_state_dict(model))


def assert_equal(found: Tensors, expected: Tensors) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_peft_loads_a_published_lora_of_the_language_model(language: tuple[Artefact, Tensors], tmp_path: Path) -> None:
    artefact, tensors = language
    assert artefact.target_modules == json.loads(artefact.files["adapter_config.json"])["target_modules"]
    assert artefact.target_modules is not None
    assert {name.split(".lora_")[0] for name in tensors} == {f"base_model.model.{n}" for n in artefact.target_modules}
    base = LlavaForConditionalGeneration.from_pretrained(LLAVA, dtype=torch.float32)
    assert_equal(loaded(base, artefact, tmp_path), tensors)


def test_peft_loads_a_published_lora_of_the_vision_tower(
    clip: ResidentClip, vision: tuple[Artefact, Tensors], tmp_path: Path
) -> None:
    artefact, tensors = vision
    with pytest.warns(UserWarning, match="Found missing adapter keys"):  # PEFT has an out_proj there, of zeros
        model = PeftModel.from_pretrained(copy.deepcopy(clip.clip.model), write(artefact, tmp_path))
    found = get_peft_model_state_dict(model)
    left = found.keys() - tensors.keys()
    assert all(".attn.base_layer.out_proj." in name for name in left)
    assert not any(found[name].any() for name in left if "lora_B" in name)
    assert_equal({name: found[name] for name in tensors}, tensors)


def write(artefact: Artefact, folder: Path) -> Path:
    for name, data in artefact.files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("kind", ["language", "vision"])
def test_the_store_takes_it(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    artefact, _ = request.getfixturevalue(kind)
    family, resident = ("mllm", "mllm") if kind == "language" else ("clip", "clip")
    model = request.getfixturevalue(resident)
    said = Manifest(
        client="amy",
        role="personal",
        family=family,  # type: ignore[arg-type]
        method="fedit",
        base=model.base,
        rank=artefact.rank,
        target_modules=artefact.target_modules,
        image_transform=model.image_transform,
        prompt_template=artefact.prompt_template,
        class_names=list(artefact.class_names),
    )
    check_content(said, artefact.files)
    store = Store(tmp_path)
    store.verify("amy", store.publish(said, artefact.files, {}, activate=True))


def test_the_bytes_are_the_same_in_every_process(language: tuple[Artefact, Tensors]) -> None:
    """PEFT keeps the names as a set, whose order hangs on PYTHONHASHSEED."""
    code = (
        "import sys, torch; from train.models.lora import LoraOptions, lora_files;"
        f"names = {language[0].target_modules!r};"
        "t = {f'base_model.model.{n}.lora_{s}.weight': torch.zeros(2, 2) for n in names for s in 'AB'};"
        "sys.stdout.buffer.write(lora_files(LoraOptions(), 'base', t)['adapter_config.json'])"
    )
    written = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(written) == 1
