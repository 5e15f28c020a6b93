"""Runs a command in a process group of its own and ends the whole group when standard input closes.

The gateway holds the other end of that pipe: however the gateway ends, kill -9 included, the kernel closes it, and no
engine process is left behind. Run as a file (`python guard.py SECONDS COMMAND…`); it imports the standard library only.
"""

import os
import select
import signal
import subprocess
import sys


def main() -> int:
    """Exit status of the command, or 0 after an ordered stop. ``SECONDS`` is what the group gets to end by itself."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the group's SIGTERM is for the others in it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_default_signals)
    try:
        ended = _wait_for_end_or_closed_input(child)
        if not ended:
            os.killpg(0, signal.SIGTERM)
            child.wait(grace_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        status = child.poll()
        sys.stdout.flush()
        if _others_in_group():
            os.killpg(0, signal.SIGKILL)  # this process too
    return status if status is not None else 0


def _default_signals() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait_for_end_or_closed_input(child: "subprocess.Popen[bytes]") -> bool:
    """True when the child ended by itself, False when standard input closed."""
    while True:
        readable, _, _ = select.select([sys.stdin], [], [], 0.2)
        if child.poll() is not None:
            return True
        if readable and not os.read(sys.stdin.fileno(), 1):
            return False


def _others_in_group() -> bool:
    group = os.getpgrp()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.getpgid(int(name)) == group:
                    return True
            except ProcessLookupError:
                continue
    return False


if __name__ == "__main__":
    sys.exit(main())
