"""Takes a process, and all that it will start, off the host's network; it imports the standard library only.

vLLM's parts talk to each other over a dozen ports of the loopback address, which every user of the host could connect
to. In a network namespace of the engine's own nobody else sees them; its one way in is the Unix socket.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1  # linux/sockios.h, linux/if.h


def leave_network() -> bool:
    """Whether this process, of one thread, has a network namespace of its own now; some container hosts forbid it."""
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNET) != 0:
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            return False
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    return True
