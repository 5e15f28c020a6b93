"""A folder that only this gateway reads and writes, gone with it: engine socket, log, verified copies of versions.

The gateway holds a lock on a file in it. However it ended, its guard, or the next gateway, finds the lock free and
removes what was left. (The guard runs as a file beside this one, which therefore imports the standard library only.)
"""

import fcntl
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path

log = logging.getLogger(__name__)

PREFIX = "fedtailor-gateway-"
LOCK = ".lock"
UNLOCKED_FOR_S = 60.0  # a folder without a lock file may be one that is just being made


class PrivateFolder:
    """``path`` exists, mode 0700, from here to ``remove``."""

    def __init__(self) -> None:
        sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))  # mode 0700
        self._lock = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Deletes the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(parent: Path) -> None:
    """Removes this user's folders under ``parent`` whose gateways are gone."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            own = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
            if own and abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
                log.info("removed %s, which a gateway left behind", folder)
        except OSError:
            continue  # it went away by itself


def abandoned(folder: Path) -> bool:
    """Whether the gateway that made the folder is gone."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - folder.lstat().st_mtime > UNLOCKED_FOR_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
