"""The page in a process of its own, as a person would start it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from adapters_store.paths import PROJECT_ROOT
from tests.serve.live import end, free_port


@contextmanager
def running_page(gateway: str, *options: str) -> Iterator[str]:
    """The page's URL, for as long as the block lasts."""
    command = [sys.executable, "-m", "ui", "--gateway", gateway, "--port", str(free_port()), *options]
    with subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()  # empty where it ended instead
            assert said.startswith("FedTailor UI on "), said
            yield said.split()[3]
        finally:
            end(process)
