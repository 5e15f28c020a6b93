"""A federation from the command line is scored on what nobody trains exactly as its artefacts answer it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.train.small import config, yaml_file
from train.data import Example, build, score
from train.fed import main
from train.methods import build_method
from train.methods.contract import ClientInfo
from train.models.interfaces import Personal
from train.models.mllm import Mllm
from train.models.resident import zero_shot
from train.run.results import ROWS

DATA: dict[str, Any] = {
    "clients": 2,
    "partition": "task_style",
    "task_styles": {"ground": ["paint"], "digit": ["handwriting"]},
    "unseen_styles": {"ground": "cartoon", "digit": "pixel"},
    "unseen_tasks": ["position"],
    "unseen_per_client": 6,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unseen")
    path = yaml_file(folder, "fedit", data=DATA, federation={"rounds": 1}, client={"local_steps": 4, "lr": 5e-3})
    assert main(["--config", str(path), "--out", str(folder / "run")]) == 0
    return folder / "run"


def right(personal: Personal, examples: Sequence[Example]) -> float:
    answers = personal.answer(examples)
    return sum(score(e.task, a, e.answer) for e, a in zip(examples, answers, strict=True)) / len(examples)


def test_results_equal_an_evaluation_of_the_artefacts(run: Path, mllm: Mllm) -> None:
    made = config("fedit", data=DATA)
    method = build_method(made.method)
    results = json.loads((run / "results.json").read_text())

    def answering(row: str, client: str) -> Personal:
        if row == "zero_shot":
            return zero_shot(mllm, ClientInfo("x", 1))
        places = {"personal": run / "artefacts" / client, "global": run / "artefacts" / "global"}
        folder = places.get(row, run / "local" / "artefacts" / client)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        return method.build(mllm, ClientInfo("x", 1), method.restore(files), None)

    for client, entry in zip(build(made.data, made.seed), results["clients"], strict=True):
        assert entry["unseen"].keys() == client.unseen.keys()
        for row in ROWS:
            personal = answering(row, client.id)
            assert entry[row] == right(personal, client.test)
            for kind, examples in client.unseen.items():
                assert entry["unseen"][kind][row] == right(personal, examples)


def test_training_changes_what_is_answered(run: Path) -> None:
    """Otherwise equal rows above would say nothing."""
    iou = json.loads((run / "results.json").read_text())["metrics"]["ground.iou"]
    assert len({iou[row] for row in ROWS}) == 4


def test_handwriting_has_an_unseen_style_alone(run: Path) -> None:
    results = json.loads((run / "results.json").read_text())
    ground, digit = results["clients"]
    assert (sorted(ground["unseen"]), sorted(digit["unseen"])) == (["style", "task"], ["style"])
    assert results["unseen"]["task"]["mean"] == ground["unseen"]["task"]
    assert results["tasks"]["digit"]["personal"] == digit["personal"]
