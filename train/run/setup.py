"""Before a run: its processes and threads, and its folder."""

import argparse
import datetime
import importlib.util
import json
import os
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

from adapters_store.disk.files import close_to_others, make_folder
from train.errors import RunError
from train.federation.checkpoint import Checkpoints
from train.run.config import RunConfig
from train.run.results import write_json

PATIENCE = datetime.timedelta(days=1)  # how long a process waits for the others; accelerate says 30 minutes


def start_processes(config: RunConfig, folder: Path) -> Accelerator:
    """This process among those that accelerate launched; an error where there are not as many as the run asks for."""
    tracker = config.tracking.report_to
    if tracker is not None and importlib.util.find_spec(tracker) is None:  # accelerate would go on without it
        raise RunError(
            f"tracking.report_to: {tracker} is not installed; pip install {tracker}, or leave the option out"
        )
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),
        log_with=tracker,
        project_dir=str(folder),
        kwargs_handlers=[InitProcessGroupKwargs(timeout=PATIENCE)],
    )
    asked, found = config.federation.processes, accelerator.num_processes
    if asked is not None and asked != found:
        raise RunError(
            f"federation.processes: {asked} asked for, but accelerate started {found}; launch with "
            "--config_file train/configs/accelerate/cpu2.yaml or one of its like"
        )
    torch.set_num_threads(config.federation.threads or default_threads(found))
    return accelerator


def default_threads(processes: int) -> int:
    """Cores ÷ processes: two busy threads on one core are slower than one by far."""
    return max(1, len(os.sched_getaffinity(0)) // processes)


def run_folder(config: RunConfig, options: argparse.Namespace) -> Path:
    """The folder to resume, or the new one."""
    named = options.resume or options.out or Path("runs") / f"{Path(options.config).stem}-{config.seed}"
    return Path(named).resolve()


def claim_folder(folder: Path, config: RunConfig) -> None:
    """Writes the resolved configuration, the thread count among it: bits are equal only for equal thread counts.

    Whatever the run writes, clients' own states among it, is for nobody but its user: an older folder is closed too.
    """
    close_to_others(make_folder(folder))
    if (folder / "config.json").exists():
        return
    federation = config.federation.model_copy(update={"threads": torch.get_num_threads()})
    write_json(folder / "config.json", config.model_copy(update={"federation": federation}).model_dump(mode="json"))


def extend(folder: Path, rounds: int) -> None:
    """Lets a run go on to so many rounds: what its clients were given after the last round that it had is forgotten.

    The configuration changes last, so that whatever cuts this short leaves a run that can be resumed.
    """
    resolved = json.loads((folder / "config.json").read_text())
    if (before := resolved["federation"]["rounds"]) < rounds:
        for federation in (folder, folder / "local"):
            Checkpoints(federation / "checkpoints").forget_after(before)
        resolved["federation"]["rounds"] = rounds
        write_json(folder / "config.json", resolved)
