"""Runs of the product's own command on pilot_scenes, several at a time, each on one thread."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CONFIG: Final = ROOT / "train" / "configs" / "pilot_scenes.yaml"
Values = Mapping[str, Any]

VARIANTS: Final[dict[str, Values]] = {
    "fedit": {"name": "fedit", "connector": True},
    "pilot": {"name": "pilot"},
    "without ATA": {"name": "pilot", "aggregation": "mean"},
    "without L_d": {"name": "pilot", "difference_weight": 0.0},
    "without CT-MoA": {"name": "pilot", "cross_task": False},
    "with ct_clip": {"name": "pilot", "ct_clip": True},
}
"""FedIT averages LoRA and connector of everybody; its personal steps are as many as Pilot's extra first exchange."""


@dataclass(frozen=True)
class Job:
    """One run: a method of ``VARIANTS`` at a learning rate, on one seed's data, scored on a split."""

    method: str
    lr: float
    seed: int
    split: str
    local: bool = False  # beside it, the same modules without communication


def config(job: Job) -> dict[str, Any]:
    """The run's configuration."""
    values: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    personal = 0 if VARIANTS[job.method]["name"] == "pilot" else steps_of_an_exchange(values)
    values["method"] = dict(VARIANTS[job.method])
    values["client"] |= {"lr": job.lr, "personal_steps": personal}
    references = ["zero_shot", "local"] if job.local else ["zero_shot"]
    values |= {"seed": job.seed, "evaluate": {"split": job.split, "references": references}}
    values["federation"]["threads"] = 1
    return values | {"publish": {"enabled": False}}


def steps_of_an_exchange(values: Values) -> int:
    """Optimiser steps that a client takes in one exchange."""
    client, examples = values["client"], values["data"]["train_per_client"]
    return int(client["local_epochs"] * -(-examples // client["batch_size"]))


def play_all(jobs: Sequence[Job], processes: int, kept: Path, done: Callable[[str], None]) -> list[dict[str, Any]]:
    """``results.json`` of every job, in their order; ``done`` hears of each at its end.

    ``kept``: folder where they stay, by their configuration, so that a study that was cut short goes on.
    """
    kept.mkdir(parents=True, exist_ok=True)

    def play(job: Job) -> dict[str, Any]:
        values = config(job)
        path = kept / f"{hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]}.json"
        if not path.exists():
            path.write_text(json.dumps(_play(values)))
        results: dict[str, Any] = json.loads(path.read_text())
        done(f"{job.method}, lr {job.lr:g}, seed {job.seed}")
        return results

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(play, jobs))


def _play(values: Values) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        path, out = Path(folder) / "run.yaml", Path(folder) / "run"
        path.write_text(yaml.safe_dump(dict(values)))
        command = [sys.executable, str(ROOT / "train" / "fed.py"), "--config", str(path), "--out", str(out)]
        played = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        if played.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {played.returncode}:\n{played.stderr}")
        results: dict[str, Any] = json.loads((out / "results.json").read_text())
        return results
