"""Federations played to the end, over data settings and seeds: every client's accuracy by method."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

import torch

from bench.prompt_study.loop import load, rounds
from bench.prompt_study.settings import SETTINGS, Values, run_config
from train.data import ClientData, build
from train.federation.log import read_metrics
from train.methods import build_method
from train.models.clip import ResidentClip
from train.run.config import RunConfig

MEASURED: Final = ("zero_shot", "personal")


@dataclass(frozen=True)
class Row:
    """One run to play: its name in the table, the method with its options, and fields of the client section."""

    name: str
    method: Values
    client: Values


@dataclass(frozen=True)
class Job:
    """Runs on one setting's data of one seed, measured on this split; ``data`` and ``federation``: fields changed."""

    setting: str
    seed: int
    rows: Sequence[Row]
    split: str
    data: Values
    federation: Values


@dataclass(frozen=True)
class Result:
    """Accuracy in [0, 1] by client and row, "zero-shot" among them, and what each row's rounds cost."""

    setting: str
    seed: int
    accuracy: dict[str, dict[str, float]]
    cost: dict[str, dict[str, float]]


def play_all(jobs: Sequence[Job], processes: int, done: Callable[[Result], None]) -> list[Result]:
    """All results in the order of the jobs, from so many processes of one thread; ``done`` hears of each at its end."""
    context = get_context("spawn")  # forked processes would share torch's threads
    with ProcessPoolExecutor(processes, context) as pool:
        futures = [pool.submit(play, job) for job in jobs]
        for future in as_completed(futures):
            done(future.result())
        return [future.result() for future in futures]


def play(job: Job) -> Result:
    """The job's runs, one after the other, on one resident base that encodes every image once."""
    torch.set_num_threads(1)
    setting = SETTINGS[job.setting]
    sections = {"data": {**setting.data, **job.data}, "federation": job.federation, "evaluate": {"split": job.split}}
    configs = {
        row.name: run_config(setting.config, job.seed, row.method, client=row.client, **sections) for row in job.rows
    }
    first = next(iter(configs.values()))
    clients, resident = build(first.data, job.seed), load(first)
    accuracy, cost = {}, {}
    for name, config in configs.items():
        scores, cost[name] = _run(config, resident, clients)
        accuracy[name] = scores["personal"]
        accuracy["zero-shot"] = scores["zero_shot"]
    return Result(job.setting, job.seed, accuracy, cost)


def _run(
    config: RunConfig, resident: ResidentClip, clients: Sequence[ClientData]
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Accuracy by row and client, and bytes a client and round and seconds of local training a round."""
    with TemporaryDirectory() as folder:
        endings, _ = rounds(config, build_method(config.method), resident, clients, Path(folder)).run()
        metrics = read_metrics(Path(folder) / "metrics.jsonl")
    turns = [line for line in metrics if line["phase"] == "train"]
    scores = {row: {client: end.scores[row].mean for client, end in endings.items()} for row in MEASURED}
    cost = {way: mean(line[way] for line in turns) for way in ("bytes_up", "bytes_down")}
    return scores, {**cost, "seconds": sum(line["seconds"] for line in turns) / config.federation.rounds}


def by_client(results: Sequence[Result], row: str) -> list[list[float]]:
    """A row's accuracies: a list over the clients for each seed."""
    return [list(result.accuracy[row].values()) for result in results if row in result.accuracy]
