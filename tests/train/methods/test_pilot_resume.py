"""A run of Pilot killed in stage 1, between the exchanges of round 1, or in stage 2, ends with the same bits."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.federation.test_resume import arguments, outcome
from tests.train.small import config
from train.fed import main

SMALL = config("pilot")
TURN = SMALL.data.clients * (SMALL.client.local_steps or 0)
"""Steps of all clients in one exchange."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pilot")
    assert main(arguments(folder, "pilot")) == 0
    return folder


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(2, id="stage 1", marks=pytest.mark.accept),
        pytest.param(TURN + 1, id="between the exchanges"),
        pytest.param(TURN + 2, id="stage 2", marks=pytest.mark.accept),
        pytest.param(2 * TURN + 3, id="round 2", marks=pytest.mark.accept),
    ],
)
def test_killed_and_resumed_is_as_if_nothing_had_happened(reference: Path, step: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.train.killed_run", "pilot", str(step), *arguments(tmp_path, "pilot")]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert main(["--resume", str(tmp_path / "run")]) == 0
    assert outcome(tmp_path) == outcome(reference)
