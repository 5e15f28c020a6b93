"""From federated rounds to a served personal answer, every part real."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import yaml

from adapters_store.paths import PROJECT_ROOT
from adapters_store.store import Store
from tests.floats import check_probabilities
from tests.serve.live import LiveGateway, data_url, running_gateway
from tests.serve.parity import Question, check_parity, check_parity_together
from tests.train.small import config, yaml_file
from train.data import ClientData, build
from train.data.score import read_box
from train.fed import main
from train.methods import build_method
from train.methods.contract import ClientInfo
from train.models.clip import ResidentClip
from train.models.resident import load_resident
from train.run.config import RunConfig

MANY = 1000  # classes: all that a version has


def test_trained_clients_are_loaded_while_serving_and_answer_as_in_training(
    gateway: LiveGateway, tmp_path: Path
) -> None:
    """A federation publishes into the store of a running gateway; seconds later its clients answer, token for token."""
    publish = {"enabled": True, "store": str(gateway.store.root)}
    data = {"test_per_client": 8, "clients": 2, "tasks": ["caption"]}
    # at a high rate a few steps lead far enough from the base that the adapter must really be at work
    client = {"local_steps": 5, "personal_steps": 5, "lr": 0.02}
    sections = {"publish": publish, "data": data, "client": client, "evaluate": {"references": []}}
    arguments = ["--config", str(yaml_file(tmp_path, "fedit", **sections)), "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    versions = json.loads((tmp_path / "run" / "versions.json").read_text())
    federation = build(config("fedit", **sections).data, 0)
    answers = {}
    for member in federation:
        gateway.wait_for(member.id, versions[member.id], timeout_s=10)
        questions = [(example.image, example.question) for example in member.test]
        check_parity(gateway, gateway.store, member.id, questions)
        answers[member.id] = [gateway.ask(member.id, text, image)["choices"][0]["message"] for image, text in questions]
        assert answers[member.id] != [gateway.ask("base", t, i)["choices"][0]["message"] for i, t in questions]


def test_pilots_clients_are_served_with_their_connectors(gateway: LiveGateway, tmp_path: Path) -> None:
    """Two stages, published into a running gateway: all clients asked at once, and boxes as the trainer draws them."""
    sections = {
        "publish": {"enabled": True, "store": str(gateway.store.root)},
        "data": {"test_per_client": 6, "clients": 2, "tasks": ["ground", "count"]},
        "client": {"local_steps": 4, "lr": 0.01},
        "evaluate": {"references": []},
    }
    arguments = ["--config", str(yaml_file(tmp_path, "pilot", **sections)), "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    versions = json.loads((tmp_path / "run" / "versions.json").read_text())
    settings = config("pilot", **sections)
    federation = build(settings.data, 0)
    for member in federation:
        gateway.wait_for(member.id, versions[member.id], timeout_s=10)
    check_parity_together(gateway, gateway.store, {member.id: asked(member) for member in federation})
    check_boxes(gateway, gateway.store, settings, federation[0])


def asked(member: ClientData) -> list[Question]:
    """A client's test questions."""
    return [(example.image, example.question) for example in member.test]


def check_boxes(gateway: LiveGateway, store: Store, settings: RunConfig, member: ClientData) -> None:
    """The gateway's boxes are those of the trainer's own model over the published bytes."""
    live = store.live(member.id, "mllm")
    assert live is not None
    folder = store.artefact(member.id, live.version).path
    method = build_method(settings.method)
    model = load_resident(settings.base, "mllm")
    state = method.restore({path.name: path.read_bytes() for path in folder.iterdir()})
    drawn = method.build(model, ClientInfo.of(member), state, None).answer(member.test)
    boxes = [read_box(answer) for answer in drawn]
    assert any(boxes)
    said = [gateway.ask(member.id, text, image)["choices"][0]["message"]["content"] for image, text in asked(member)]
    assert [read_box(answer) for answer in said] == boxes


@pytest.mark.parametrize("name", ["coop", "pfedmoap", "pfedprompt", "promptfl"])
def test_a_trained_classifier_answers_as_in_training(
    gateway: LiveGateway, tmp_path: Path, clip: ResidentClip, name: str
) -> None:
    """The same first class and probabilities, but for rounding, for every client's test images."""
    sections = {"publish": {"enabled": True, "store": str(gateway.store.root)}, "evaluate": {"references": []}}
    arguments = ["--config", str(yaml_file(tmp_path, name, **sections)), "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    versions = json.loads((tmp_path / "run" / "versions.json").read_text())
    method = build_method(config(name).method)
    for member in build(config(name).data, 0):
        gateway.wait_for(member.id, versions[member.id], timeout_s=10)
        artefact = gateway.store.artefact(member.id, versions[member.id])
        state = method.restore({"prompt.safetensors": (artefact.path / "prompt.safetensors").read_bytes()})
        info = ClientInfo.of(member)
        personal = method.build(clip, info, state, None)
        with torch.no_grad():
            expected = personal.head().logits(clip.features(member.test)).softmax(dim=-1).tolist()
        for example, probabilities in zip(member.test, expected, strict=True):
            served = classify(gateway, member.id, example.image, len(member.class_names))
            wanted = dict(zip(member.class_names, probabilities, strict=True))
            check_probabilities(served, wanted)
            assert personal.answer([example]) == [max(wanted, key=lambda name: wanted[name])]


@pytest.mark.parametrize("name", ["sap", "anchored"])
def test_a_merge_answers_whom_it_never_saw_as_it_was_evaluated(
    gateway: LiveGateway, tmp_path: Path, clip: ResidentClip, name: str
) -> None:
    """One exchange, published as ``global``: images of a style that no client has, probabilities but for rounding."""
    unseen = {"unseen_styles": {"classify": "inverted"}, "unseen_per_client": 12}
    sections = {
        "publish": {"enabled": True, "store": str(gateway.store.root)},
        "evaluate": {"references": []},
        "data": unseen,
        "client": {"lr": 0.01},
    }
    run = tmp_path / "run"
    assert main(["--config", str(yaml_file(tmp_path, name, **sections)), "--out", str(run)]) == 0
    version = json.loads((run / "versions.json").read_text())["global"]
    gateway.wait_for("global", version, timeout_s=10)
    settings = config(name, **sections)
    method, member = build_method(settings.method), build(settings.data, 0)[0]
    folder = gateway.store.artefact("global", version).path
    merged = method.restore({path.name: path.read_bytes() for path in folder.iterdir()})
    model: Any = method.build(clip, ClientInfo.of(member), merged, None)
    expected = model.logits(member.unseen["style"]).softmax(dim=-1)
    right = 0
    for example, probabilities in zip(member.unseen["style"], expected.tolist(), strict=True):
        served = classify(gateway, "global", example.image, MANY)
        of_client = {name: served[name] for name in member.class_names}
        total = sum(of_client.values())
        wanted = dict(zip(member.class_names, probabilities, strict=True))
        check_probabilities({name: p / total for name, p in of_client.items()}, wanted)
        right += max(of_client, key=lambda name: of_client[name]) == example.answer
    results = json.loads((run / "results.json").read_text())["clients"][0]
    assert right / len(member.unseen["style"]) == results["unseen"]["style"]["global"]


def test_a_merged_language_model_is_served_as_global(gateway: LiveGateway, tmp_path: Path) -> None:
    """SAP on the 4-bit LLaVA: the merge and its clients answer token for token as in training."""
    method = {"family": "mllm", "ratio": 0.5, "lora": {"rank": 4, "alpha": 8}, "anchors": {"count": 4}}
    data = {"clients": 2, "styles": ["sketch", "inverted"], "tasks": ["caption"], "few_shot": None}
    sections = {
        "publish": {"enabled": True, "store": str(gateway.store.root)},
        "method": method,
        "base": {"path": "bases/tiny/llava"},
        "data": {**data, "train_per_client": 16, "test_per_client": 8},
        "client": {"local_steps": 8, "batch_size": 8, "lr": 0.02},
        "evaluate": {"references": []},
    }
    arguments = ["--config", str(yaml_file(tmp_path, "sap", **sections)), "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    versions = json.loads((tmp_path / "run" / "versions.json").read_text())
    federation = build(config("sap", **sections).data, 0)
    for name in versions:
        gateway.wait_for(name, versions[name], timeout_s=10)
    questions = {member.id: asked(member) for member in federation}
    shared = [question for one in questions.values() for question in one]
    check_parity_together(gateway, gateway.store, {**questions, "global": shared})
    said = [gateway.ask("global", text, image)["choices"][0]["message"] for image, text in shared]
    assert said != [gateway.ask("base", text, image)["choices"][0]["message"] for image, text in shared]


def classify(gateway: LiveGateway, client: str, image: np.ndarray, count: int) -> dict[str, float]:
    body = {"model": client, "image": data_url(image), "top_k": count}
    with gateway.http() as http:
        answer = http.post("/v1/classify", json=body)
    assert answer.status_code == 200, answer.text
    return {entry["class_name"]: entry["probability"] for entry in answer.json()["top"]}


@pytest.mark.accept
def test_fifty_questions_of_every_published_client(tmp_path: Path) -> None:
    """The demonstration's own federation, with fifty test questions for each client and for the global version."""
    settings = yaml.safe_load((PROJECT_ROOT / "train" / "configs" / "demo.yaml").read_text())
    settings["data"]["test_per_client"] = 50
    settings["evaluate"] = {"references": []}
    store = Store(tmp_path / "store")
    settings["publish"] = {"store": str(store.root)}
    path = tmp_path / "demo.yaml"
    path.write_text(yaml.safe_dump(settings))
    assert main(["--config", str(path), "--out", str(tmp_path / "run")]) == 0
    federation = build(RunConfig.model_validate(settings).data, 0)
    with running_gateway(store.root) as live:
        for member in federation:
            questions = [(example.image, example.question) for example in member.test]
            assert len(questions) == 50
            check_parity(live, store, member.id, questions)
        shared = [(example.image, example.question) for member in federation for example in member.test[:17]]
        check_parity(live, store, "global", shared)


@pytest.mark.accept
def test_fifty_questions_of_every_client_of_pilot(tmp_path: Path) -> None:
    """pilot_scenes as it is: ten clients of five tasks, all of them asked at once, and the global version."""
    store = Store(tmp_path / "store")
    path = PROJECT_ROOT / "train" / "configs" / "pilot_scenes.yaml"
    told = ["--publish.store", str(store.root), "--evaluate.references", "[]", "--data.unseen_per_client", "1"]
    assert main(["--config", str(path), "--out", str(tmp_path / "run"), *told]) == 0
    settings = RunConfig.model_validate(yaml.safe_load(path.read_text()))
    federation = build(settings.data, 0)
    questions = {member.id: asked(member) for member in federation}
    assert all(len(one) >= 50 for one in questions.values())
    shared = [question for one in questions.values() for question in one[:5]]
    with running_gateway(store.root) as live:
        check_parity_together(live, store, {**questions, "global": shared})
        for member in federation:
            if member.test[0].task == "ground":
                check_boxes(live, store, settings, member)


@pytest.mark.accept
def test_the_demo_ends_cleanly() -> None:
    """``make demo STAY=0`` exits 0, prints what it promises, and leaves nothing running."""
    done = subprocess.run([sys.executable, "demo.py", "--no-stay"], cwd=PROJECT_ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for word in ("Training:", "Engine up:", "question", "truth", "personal", "base"):
        assert word in done.stdout
    left = [p.info for p in psutil.process_iter(["cmdline"]) if "demo-run/store" in " ".join(p.info["cmdline"] or [])]
    assert left == []
