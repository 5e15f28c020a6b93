"""pFedPrompt's own: the memory is built at home, tuned on validation data, and published only by consent."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load

from tests.train.small import config, federation
from train.methods.pfedprompt import SHARPNESS, UNTUNED, WEIGHTS
from train.models.clip import MemoryClassifier, PromptClassifier, ResidentClip

pytestmark = pytest.mark.numeric


def run(clip: ResidentClip, folder: Path, **sections: Any) -> Any:
    loop, _ = federation(config("pfedprompt", evaluate={"references": []}, **sections), clip, folder)
    endings, _ = loop.run()
    return loop, {client: load(ending.artefact.files["prompt.safetensors"]) for client, ending in endings.items()}


def test_only_clients_that_opted_in_publish_their_features(clip: ResidentClip, tmp_path: Path) -> None:
    method = {"name": "pfedprompt", "prompt": {"length": 4}, "opt_in": ["client-01"]}
    loop, artefacts = run(clip, tmp_path, method=method)
    assert artefacts["client-01"].keys() == {"prompt", "memory.features", "memory.labels", "memory.weights"}
    assert artefacts["client-00"].keys() == artefacts["client-02"].keys() == {"prompt"}
    data = loop.backend.site.clients["client-01"]
    assert torch.equal(artefacts["client-01"]["memory.features"], clip.features(data.train))
    assert artefacts["client-01"]["memory.labels"].tolist() == [example.label for example in data.train]
    for upload in sorted((tmp_path / "exchange").glob("*/up/*.safetensors")):
        assert load(upload.read_bytes()).keys() <= {"prompt"}
    for info in loop.clients:
        built = loop.method.build(clip, info, artefacts[info.id], None)
        assert type(built) is (MemoryClassifier if info.id == "client-01" else PromptClassifier)


def test_weights_are_the_best_on_validation_data(clip: ResidentClip, tmp_path: Path) -> None:
    loop, artefacts = run(clip, tmp_path, data={"val_per_client": 24})
    data, kept = loop.backend.site.clients["client-00"], artefacts["client-00"]
    x, labels = clip.features(data.val), np.array([example.label for example in data.val])
    text = clip.texts(data.class_names, 4).features(kept["prompt"]).detach()

    def judge(a: float, beta: float) -> tuple[int, float]:
        affinity = torch.exp(-beta * (1 - x @ kept["memory.features"].T))
        one_hot = F.one_hot(kept["memory.labels"], len(data.class_names)).float()
        logits = clip.clip.logit_scale * x @ text.T + a * affinity @ one_hot
        return int((logits.argmax(1).numpy() != labels).sum()), F.cross_entropy(logits, torch.tensor(labels)).item()

    found = judge(*kept["memory.weights"].tolist())
    best = min(judge(a, beta) for a in WEIGHTS for beta in SHARPNESS)
    assert found[0] == best[0]
    np.testing.assert_allclose(found[1], best[1], rtol=1e-4)


def test_without_validation_data_the_weights_are_the_usual_ones(clip: ResidentClip, tmp_path: Path) -> None:
    _, artefacts = run(clip, tmp_path, data={"val_per_client": 0}, federation={"rounds": 1})
    assert artefacts["client-00"]["memory.weights"].tolist() == list(UNTUNED)
