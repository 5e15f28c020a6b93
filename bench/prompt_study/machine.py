"""Where a figure was measured: processor, threads, memory, versions."""

import os
import platform
import resource
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("torch", "open_clip_torch", "numpy")
MIB: Final = 1 << 20


def machine() -> dict[str, Any]:
    """The machine that a results file names."""
    return {
        "processor": _processor(),
        "cores": default_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }


def default_threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def peak_memory_mib() -> float:
    """Most memory that this process has held so far, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB; bytes on macOS
    return peak / (MIB if platform.system() == "Darwin" else 1024)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor()
