"""What a round costs as the federation grows, and which part of it grows with whom."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from bench.prompt_study.loop import Clock, Rounds, WatchedPFedMoAP, load, rounds
from bench.prompt_study.machine import MIB, peak_memory_mib
from bench.prompt_study.settings import run_config
from train.data import build
from train.federation.log import read_metrics

DATA: Final[dict[str, Any]] = {"few_shot": 2, "val_per_client": 1, "test_per_client": 1}
"""Ten classes of one colour a client, two images a class: eight lists of classes among all clients."""
GROWTH: Final = ((10, 1), (100, 10), (1000, 100))
"""(clients, of them in a round): one in ten takes part."""
FIXED: Final = ((10, 10), (100, 10), (1000, 10))
"""Ten take part, of more and more."""


def measure(clients: int, per_round: int, timed: int, **client: Any) -> dict[str, Any]:
    """``timed`` rounds of ``per_round`` clients after one in which all take part; run it in a process of its own.

    So the pool holds a prompt of every client and every gate is on: the dearest state a federation of that size can be
    in. Peak memory only ever rises; it is noted after each stage. ``client`` changes fields of the client section.
    """
    torch.set_num_threads(1)
    method = {"experts": 9, "prompt": {"length": 16}}
    config = run_config("pfedmoap_scenes", method=method, data={**DATA, "clients": clients}, client=client)
    federation = config.federation.model_copy(update={"clients_per_round": per_round})
    clock = Clock()
    watched = WatchedPFedMoAP(config.method, clock)
    resident = load(config)
    memory, once = {"base": peak_memory_mib()}, {}
    started = time.perf_counter()
    data = build(config.data, config.seed)
    once["data"], memory["data"] = time.perf_counter() - started, peak_memory_mib()
    with TemporaryDirectory() as folder:
        (once["round_of_all"],) = rounds(config, watched, resident, data, Path(folder), clock).play(1)
        memory["round_of_all"] = peak_memory_mib()
        drawn = config.model_copy(update={"federation": federation})
        later = rounds(drawn, watched, resident, data, Path(folder), clock)
        played = [_timed_round(later, number, clock) for number in range(2, timed + 2)]
        memory["rounds"] = peak_memory_mib()
        sizes = _sizes(Path(folder))
    typical = sorted(played, key=lambda one: one["round"])[timed // 2]
    return {
        "clients": clients,
        "per_round": per_round,
        "seconds": typical,
        "seconds_per_participant": typical["clients"] / per_round,
        "every_round_seconds": [one["round"] for one in played],
        **sizes,
        "once_seconds": once,
        "peak_memory_mib": memory,
    }


def _timed_round(loop: Rounds, number: int, clock: Clock) -> dict[str, float]:
    """Seconds of a round and of its parts, which add up to it."""
    clock.reset()
    (whole,) = loop.play(number)
    parts = clock.reset()
    return {"round": whole, **parts, "rest": whole - sum(parts.values())}


def _sizes(folder: Path) -> dict[str, float]:
    """Bytes a participant is sent and uploads in a round after the first, and MiB of what the server keeps."""
    turns = [line for line in read_metrics(folder / "metrics.jsonl") if line["phase"] == "train" and line["round"] > 1]
    newest = max((folder / "checkpoints").glob("*/server.safetensors"))
    way = {name: mean(line[name] for line in turns) for name in ("bytes_up", "bytes_down")}
    return {**way, "server_state_mib": newest.stat().st_size / MIB}


def markdown(measured: Sequence[Mapping[str, Any]]) -> str:
    """A row a federation: a round's seconds and their parts, bytes a participant, memory."""
    lines = ["| a round | s | turns | selection | commit | rest | KiB up | KiB down | peak MiB | base's MiB |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for one in measured:
        parts = [f"{one['seconds'][part]:.3f}" for part in ("round", "clients", "selection", "commit", "rest")]
        kib = [f"{one[way] / 1024:.1f}" for way in ("bytes_up", "bytes_down")]
        memory = [f"{one['peak_memory_mib'][stage]:.0f}" for stage in ("rounds", "base")]
        lines.append(f"| {one['per_round']} of {one['clients']} | {' | '.join([*parts, *kib, *memory])} |")
    return "\n".join(lines) + "\n"
