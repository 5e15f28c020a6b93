"""No process is left behind, however the one that started it ends."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from adapters_store.paths import PROJECT_ROOT
from serve.engine.private_folder import PrivateFolder

GUARD = PROJECT_ROOT / "serve/engine/guard.py"
PARENT = """
import subprocess, sys, time
command = [sys.executable, sys.argv[1], "0.5", "/nonexistent", *sys.argv[2:]]
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
        [sys.executable, str(GUARD), "0.5", "/nonexistent", sys.executable, "-c", leaving, str(note)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as guard:
        guard.wait(10)
    wait_until_gone([int(note.read_text())])


def test_a_command_without_children_hands_its_status_on() -> None:
    with subprocess.Popen(
        [sys.executable, str(GUARD), "0.5", "/nonexistent", sys.executable, "-c", "raise SystemExit(3)"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as guard:
        assert guard.wait(10) == 3


def test_the_command_ends_with_a_killed_guard(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    command = [
        sys.executable,
        "-c",
        "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)",
    ]
    with subprocess.Popen(
        [sys.executable, str(GUARD), "0.5", "/nonexistent", *command, str(note)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    ) as guard:
        deadline = time.monotonic() + 10
        while not (note.exists() and note.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        guard.kill()
    wait_until_gone([int(note.read_text())])


def test_the_folder_of_a_killed_gateway_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    kept = PrivateFolder()
    left = tmp_path / "left"
    left.mkdir()
    (left / ".lock").touch()  # nobody holds it
    try:
        for folder in (kept.path, left):
            with subprocess.Popen(
                [sys.executable, str(GUARD), "0.5", str(folder), sys.executable, "-c", "import time; time.sleep(60)"],
                stdin=subprocess.PIPE,
                start_new_session=True,
            ) as guard:
                assert guard.stdin is not None
                guard.stdin.close()
                guard.wait(10)
        assert kept.path.is_dir()
        assert not left.exists()
    finally:
        kept.remove()


def test_the_network_is_left_where_that_is_allowed() -> None:
    """A listener of the command's is not there for anybody else."""
    code = (
        "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
        "time.sleep(60)"
    )
    probe = "from serve.engine.own_network import leave_network; import sys; sys.exit(0 if leave_network() else 9)"
    if subprocess.run([sys.executable, "-c", probe], cwd=PROJECT_ROOT, check=False).returncode == 9:
        pytest.skip("this host forbids network namespaces")
    with subprocess.Popen(
        [sys.executable, str(GUARD), "0.5", "/nonexistent", sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as guard:
        assert guard.stdout is not None
        assert guard.stdin is not None
        port = int(guard.stdout.readline())
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        guard.stdin.close()
        guard.wait(10)
