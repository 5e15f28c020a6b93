"""Trackers through accelerate: what is asked for is written, what is not installed is refused in a sentence."""

import importlib.util
from pathlib import Path

import pytest

from tests.train.small import yaml_file
from train.fed import main


def run(folder: Path, tracker: str) -> int:
    path = yaml_file(folder, "promptfl", evaluate={"references": []}, federation={"rounds": 1})
    return main(["--config", str(path), "--out", str(folder / "run"), "--tracking.report_to", tracker])


def test_losses_reach_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run(tmp_path, "tensorboard") == 0
    files = list((tmp_path / "run").rglob("events.out.tfevents.*"))
    tags = set()
    for file in files:
        events = EventAccumulator(str(file))
        events.Reload()
        tags |= set(events.Tags()["scalars"])
    assert {f"promptfl/loss/client-0{i}" for i in range(3)} <= tags


def test_a_tracker_that_is_not_installed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = next(name for name in ("wandb", "trackio", "mlflow") if importlib.util.find_spec(name) is None)
    assert run(tmp_path, missing) == 2
    assert f"tracking.report_to: {missing} is not installed" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
