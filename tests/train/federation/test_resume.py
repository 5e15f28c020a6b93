"""A run that is killed goes on with --resume and ends with the same bits."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adapters_store.store import Store
from tests.train.small import config, yaml_file
from train.fed import main

PHASES = ("train", "upload", "aggregate", "commit", "publish")


def arguments(folder: Path, method: str) -> list[str]:
    """A full run of the small configuration into ``folder``, publishing to a store inside it."""
    publish = {"enabled": True, "store": str(folder / "store")}
    return ["--config", str(yaml_file(folder, method, publish=publish)), "--out", str(folder / "run")]


def outcome(folder: Path) -> tuple[dict[str, str], list[dict[str, float]]]:
    """The published versions, every one of them verified, and the test scores."""
    store = Store(folder / "store")
    versions = json.loads((folder / "run" / "versions.json").read_text())
    for client, version in versions.items():
        store.verify(client, version)
        assert store.versions(client) == [version]
        live = store.live(client)
        assert live is not None
        assert live.version == version
    assert store.clients() == sorted(versions)
    return versions, json.loads((folder / "run" / "results.json").read_text())["clients"]


@pytest.fixture(scope="module", params=["promptfl", pytest.param("fedit", marks=pytest.mark.accept)])
def uninterrupted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    assert main(arguments(folder, request.param)) == 0
    return request.param, folder


@pytest.mark.parametrize("phase", PHASES)
def test_killed_and_resumed_is_as_if_nothing_had_happened(
    uninterrupted: tuple[str, Path], phase: str, tmp_path: Path
) -> None:
    method, reference = uninterrupted
    small = config(method)
    steps = small.data.clients * (small.client.local_steps or 0)
    killed = subprocess.run(
        [sys.executable, "-m", "tests.train.killed_run", phase, str(steps), *arguments(tmp_path, method)],
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    visible = Store(tmp_path / "store").clients()
    assert visible == ([] if phase != "publish" else ["client-00"])  # whole versions or none
    assert main(["--resume", str(tmp_path / "run")]) == 0
    assert outcome(tmp_path) == outcome(reference)
    lines = [(tmp_path / "run" / "metrics.jsonl"), (reference / "run" / "metrics.jsonl")]
    counted = [[{k: v for k, v in json.loads(x).items() if k != "seconds"} for x in p.open()] for p in lines]
    assert counted[0] == counted[1]  # a replayed round is logged once


def test_resuming_a_finished_run_changes_nothing(uninterrupted: tuple[str, Path]) -> None:
    _, folder = uninterrupted
    before = outcome(folder)
    assert main(["--resume", str(folder / "run")]) == 0
    assert outcome(folder) == before


def test_a_second_run_into_the_same_folder_is_refused(
    uninterrupted: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    method, folder = uninterrupted
    assert main(arguments(folder, method)) == 2
    assert f"already holds a run; continue it with --resume {folder / 'run'}" in capsys.readouterr().err


def test_the_run_folder_holds_what_the_readme_says(uninterrupted: tuple[str, Path]) -> None:
    method, folder = uninterrupted
    run = folder / "run"
    results = json.loads((run / "results.json").read_text())
    fields = (
        "method",
        "family",
        "seed",
        "rounds",
        "clients",
        "mean",
        "worst",
        "tasks",
        "metrics",
        "unseen",
        "bytes_up",
        "bytes_down",
        "seconds",
        "privacy",
    )
    assert list(results) == list(fields)
    assert (results["method"], results["rounds"]) == (method, 2)
    for client in results["clients"]:
        assert {"id", "n_train", "n_test", "zero_shot", "local", "personal", "global"} <= client.keys()
        assert all(0 <= client[row] <= 1 for row in ("zero_shot", "local", "personal", "global"))
    for row in ("zero_shot", "local", "personal", "global"):
        values = [client[row] for client in results["clients"]]
        assert results["mean"][row] == pytest.approx(sum(values) / len(values))
        assert results["worst"][row] == min(values)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    turns = [line for line in lines if line["phase"] in ("train", "personal")]
    assert {(line["round"], line["client"]) for line in turns} == {
        (number, client["id"]) for number in (1, 2, 3) for client in results["clients"]
    }
    assert results["bytes_up"] == sum(line["bytes_up"] for line in turns) > 0
    assert json.loads((run / "config.json").read_text())["federation"]["threads"] == 1
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_report_holds_the_scores_of_the_version(uninterrupted: tuple[str, Path]) -> None:
    _, folder = uninterrupted
    versions, clients = outcome(folder)
    store = Store(folder / "store")
    for entry in clients:
        client = str(entry["id"])
        assert store.artefact(client, versions[client]).report["evaluation"]["personal"] == entry["personal"]
    assert "mean" in store.artefact("global", versions["global"]).report["evaluation"]
