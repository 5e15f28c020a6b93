"""Federations with differentially private uploads, played to the end: accuracy and what it cost in ε."""

import io
import json
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from bench.prompt_study.progress import progress
from bench.prompt_study.settings import ROOT, SETTINGS, run_config
from train.fed import main

DATA: Final[dict[str, dict[str, Any]]] = {
    "scenes_colour": {"clients": 5, "few_shot": 32},
    "digits_dirichlet": {"few_shot": None, "train_per_client": 300},
}
"""Changed of bench/prompt_study/settings.py: more examples a client, since ε is paid for each one's influence."""
PRIVATE: Final = ("promptfl", "pfedmoap")
CLIENT: Final = {
    "local_steps": 10,
    "local_epochs": None,
    "batch_size": 32,
    "schedule": "cosine",
    "weight_decay": 0.0,
}
CLIP_NORM: Final = 1.0
"""Far below an example's gradient (its median is 20 to 40), so that the rate alone decides how far a step goes."""
CACHE: Final = ROOT / "runs" / "features"


@dataclass(frozen=True)
class Job:
    """One federation to play; ε = ∞ is plain training, its whole gradient cut to the same norm."""

    setting: str
    method: str
    epsilon: float
    seed: int
    lr: float
    split: str = "test"

    @property
    def private(self) -> bool:
        return math.isfinite(self.epsilon)


@dataclass(frozen=True)
class Outcome:
    """Accuracy in [0, 1] of the clients' own versions, mean and worst, and what their uploads cost."""

    job: Job
    mean: float
    worst: float
    zero_shot: float
    spent: list[float | None]
    noise_multipliers: list[float | None]
    seconds: float


def play(job: Job) -> Outcome:
    """Trains and evaluates one federation by train/fed.py's own ``main``, in this process."""
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        path, run = Path(folder) / "run.yaml", Path(folder) / "run"
        path.write_text(yaml.safe_dump(run_values(job)))
        if main(["--config", str(path), "--out", str(run)]) != 0:
            raise RuntimeError(f"{job} did not run")
        results = json.loads((run / "results.json").read_text())
    return Outcome(
        job,
        results["mean"]["personal"],
        results["worst"]["personal"],
        results["mean"]["zero_shot"],
        [client["epsilon"] for client in results["clients"]],
        [client["noise_multiplier"] for client in results["clients"]],
        results["seconds"],
    )


def run_values(job: Job) -> dict[str, Any]:
    """The run configuration of a job."""
    setting = SETTINGS[job.setting]
    dp = {"clip_norm": CLIP_NORM, "target_epsilon": job.epsilon} if job.private else None
    config = run_config(
        setting.config,
        job.seed,
        {"name": job.method},
        base={"cache_folder": str(CACHE)},
        data={**setting.data, **DATA[job.setting]},
        federation={"threads": 1},
        client={**CLIENT, "lr": job.lr, "clip_norm": None if job.private else CLIP_NORM},
        privacy={"dp": dp},
        evaluate={"split": job.split, "references": ["zero_shot"]},
        publish={"enabled": False},
    )
    return config.model_dump(mode="json")


def play_all(jobs: Sequence[Job], processes: int, title: str) -> list[Outcome]:
    """The outcomes in the order of the jobs, from so many processes of one thread."""
    found = []
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool, progress(title, len(jobs)) as done:
        for outcome in pool.map(play, jobs):
            found.append(outcome)
            job = outcome.job
            done(f"{job.setting} {job.method}, ε = {job.epsilon:g}, lr {job.lr:g}: {outcome.mean:.3f}")
    return found
