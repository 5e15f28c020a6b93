"""Runs a command in a process group of its own and ends the whole group when standard input closes.

The gateway holds the other end of that pipe: however the gateway ends, kill -9 included, the kernel closes it, no
engine process is left behind, and neither is the gateway's private folder. Where this process is what gets killed, the
kernel ends the command with it, and the gateway ends the rest of the group.
Run as a file (`python guard.py SECONDS FOLDER COMMAND…`); it imports the standard library only.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])  # run as a file: the package is beside serve/, not in it

from serve.engine.own_network import leave_network  # noqa: E402
from serve.engine.private_folder import abandoned  # noqa: E402

PR_SET_PDEATHSIG = 1  # linux/prctl.h
KILLED_WITHIN_S = 5.0


def main() -> int:
    """Exit status of the command, or 0 after an ordered stop. ``SECONDS`` is what the group gets to end by itself."""
    grace_s, folder, command = float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the group's SIGTERM is for the others in it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_in_child)
    try:
        ended = _wait_for_end_or_closed_input(child)
        if not ended:
            os.killpg(0, signal.SIGTERM)
            child.wait(grace_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        status = child.poll()
        _kill_others()
        if folder.is_dir() and abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
    return status if status is not None else 0


def _in_child() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    leave_network()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_end_or_closed_input(child: "subprocess.Popen[bytes]") -> bool:
    """True when the child ended by itself, False when standard input closed."""
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], 0.2)
        if child.poll() is not None:
            return True
        if readable and not os.read(sys.stdin.fileno(), 1):
            return False


def _kill_others() -> None:
    deadline = time.monotonic() + KILLED_WITHIN_S
    while (others := _others_in_group()) and time.monotonic() < deadline:
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def _others_in_group() -> list[int]:
    group, found = os.getpgrp(), []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.getpgid(int(name)) == group and not _is_zombie(int(name)):
                    found.append(int(name))
            except (ProcessLookupError, FileNotFoundError):
                continue
    return found


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


if __name__ == "__main__":
    sys.exit(main())
