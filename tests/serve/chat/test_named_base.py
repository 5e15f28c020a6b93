"""A dual encoder by its open_clip name and a file of weights, served like a folder's."""

import asyncio
import json
from pathlib import Path

import open_clip
import pytest
import torch
from safetensors.torch import save_file

from adapters_store.bases.frozen import clip_base_id
from adapters_store.store import Store
from adapters_store.versions.manifest import BaseRef
from serve.__main__ import main
from tests.serve.artefacts import CLASSES, CLIP, FEATURES, gated_tensors, publish_head
from tests.serve.in_process import classify, probabilities, serving
from tests.serve.live import noise

NAME = "fedtailor-test"
MODEL = {
    "embed_dim": FEATURES,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16, "head_width": 32},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 128, "heads": 2, "layers": 2},
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of a small model that open_clip knows by name from here on."""
    folder = tmp_path_factory.mktemp("named")
    (folder / f"{NAME}.json").write_text(json.dumps(MODEL))
    open_clip.add_model_config(folder / f"{NAME}.json")
    torch.manual_seed(0)
    save_file(open_clip.create_model(NAME).state_dict(), folder / "weights.safetensors")
    return folder / "weights.safetensors"


def test_answers_over_its_own_prompts_alone(weights: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    identity = clip_base_id(NAME, str(weights))
    assert identity != clip_base_id(CLIP)
    transform = {"size": 32, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    publish_head(store, "cat", gated_tensors(0), base=BaseRef(id=identity, name=NAME), image_transform=transform)
    publish_head(store, "dan", gated_tensors(0))

    async def ask() -> None:
        async with serving(store, clip=NAME, clip_pretrained=str(weights)) as http:
            answer = await classify(http, "cat", noise(0))
            assert answer["fedtailor"]["base"] == identity
            assert set(probabilities(answer)) == set(CLASSES)
            assert probabilities(await classify(http, "cat", noise(0), classes=["x", "y"])).keys() == {"x", "y"}
            refusals = (await http.post("/v1/admin/reload")).json()["refused"]
            assert any(name.startswith("dan@") and "is served" in why for name, why in refusals.items())

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--clip", "ViT-B-16"], "--clip-pretrained: 'ViT-B-16' is no folder; a model of open_clip"),
        (["--clip", "/nowhere/clip"], "--clip: folder '/nowhere/clip' does not exist"),
        (["--clip-pretrained", "openai"], "--clip-pretrained: found 'openai', but only a model by name takes weights"),
        (["--clip", "ViT-Q-16", "--clip-pretrained", "openai"], "'ViT-Q-16' is neither a folder nor a model"),
        (["--clip", "ViT-B-16", "--clip-pretrained", "nothing"], "'nothing'"),
        (["--zero-shot-template", "a photo"], "--zero-shot-template: found 'a photo', which has no {class} in it"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], reason: str
) -> None:
    monkeypatch.setenv("FEDTAILOR_STORE", str(tmp_path))
    assert main(["--base", "none", *words]) == 1
    error = capsys.readouterr().err.strip()
    assert reason in error
    assert "\n" not in error
