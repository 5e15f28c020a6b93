"""No process is left behind, however the one that started it ends."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from adapters_store.paths import PROJECT_ROOT

GUARD = PROJECT_ROOT / "serve/guard.py"
PARENT = """
import subprocess, sys, time
command = [sys.executable, sys.argv[1], "0.5", *sys.argv[2:]]
guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
print(guard.pid, flush=True)
time.sleep(60)
"""
STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(60)
"""


def wait_until_gone(pids: list[int]) -> None:
    """Fails after ten seconds."""
    deadline = time.monotonic() + 10
    while any(psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE for p in pids):
        assert time.monotonic() < deadline, f"still there: {pids}"
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_tree_ends_with_its_starter(tmp_path: Path, how: signal.Signals) -> None:
    note = tmp_path / "grandchild"
    command = [sys.executable, "-c", PARENT, str(GUARD), sys.executable, "-c", STUBBORN, str(note)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        guard = int(parent.stdout.readline())
        deadline = time.monotonic() + 10
        while not (note.exists() and note.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        parent.send_signal(how)
        wait_until_gone([guard, int(note.read_text())])


def test_the_tree_ends_when_the_command_does(tmp_path: Path) -> None:
    note = tmp_path / "grandchild"
    leaving = STUBBORN.removesuffix("time.sleep(60)\n")
    with subprocess.Popen(
        [sys.executable, str(GUARD), "0.5", sys.executable, "-c", leaving, str(note)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as guard:
        guard.wait(10)
    wait_until_gone([int(note.read_text())])


def test_a_command_without_children_hands_its_status_on() -> None:
    with subprocess.Popen(
        [sys.executable, str(GUARD), "0.5", sys.executable, "-c", "raise SystemExit(3)"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as guard:
        assert guard.wait(10) == 3
