"""The product's own loop and local backend in this process, with a clock on their parts."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from rich.console import Console
from torch import Tensor

from train.data import ClientData
from train.federation.backend import Reply
from train.federation.checkpoint import Checkpoint, Checkpoints
from train.federation.client import Site
from train.federation.local_backend import LocalBackend
from train.federation.log import RunLog
from train.federation.rounds import Federation
from train.methods.contract import ClientInfo, Method, Turn
from train.methods.pfedmoap import PFedMoAP
from train.models.clip import ResidentClip
from train.models.interfaces import Outputs, Personal
from train.models.resident import load_resident
from train.run.config import RunConfig
from train.tensors import Tensors


def load(config: RunConfig) -> ResidentClip:
    """The base that this configuration names."""
    resident = load_resident(config.base, "clip")
    assert isinstance(resident, ResidentClip)
    return resident


class Clock:
    """Seconds spent in named parts, summed until ``reset``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def reset(self) -> dict[str, float]:
        """The sums so far, which start again from nothing."""
        seconds, self.seconds = self.seconds, {}
        return seconds


class WatchedPFedMoAP(PFedMoAP):
    """pFedMoAP as it is, noting every step's loss and start, and the time its selection takes."""

    def __init__(self, options: Any, clock: Clock | None = None) -> None:
        super().__init__(options)
        self.clock = clock or Clock()
        self.losses: list[float] = []
        self.moments: list[list[float]] = []  # of each turn: the starts of its steps, and the end of the last

    def parcel(self, state: Tensors, client: ClientInfo) -> Tensors:
        with self.clock.part("selection"):
            return super().parcel(state, client)

    def build(self, model: ResidentClip, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        self.moments.append([])
        return super().build(model, client, state, turn)

    def trainable(self, names: Sequence[str], turn: Turn, step: int, steps: int) -> Sequence[str]:
        self.moments[-1].append(time.perf_counter())
        return super().trainable(names, turn, step, steps)

    def loss(self, outputs: Outputs, turn: Turn) -> Tensor:
        loss = super().loss(outputs, turn)
        self.losses.append(loss.item())
        return loss

    def upload(self, state: Tensors, turn: Turn) -> Tensors:
        self.moments[-1].append(time.perf_counter())
        return super().upload(state, turn)

    def step_seconds(self) -> list[float]:
        """Of every step, from choosing what moves to choosing it for the next one (or to the upload)."""
        return [b - a for turn in self.moments for a, b in pairwise(turn)]


class Rounds(Federation):
    """The loop's training rounds alone, without the personal turn and the evaluation after them."""

    def play(self, last: int) -> list[float]:
        """Plays the rounds up to ``last`` that are not committed yet; the seconds that each took, commit included."""
        committed, seconds = self.checkpoints.latest(), []
        for number in range(committed.round + 1 if committed else 1, last + 1):
            started = time.perf_counter()
            committed = self._round(number, committed)
            seconds.append(time.perf_counter() - started)
        return seconds


class _TimedCheckpoints(Checkpoints):
    def __init__(self, root: Path, clock: Clock) -> None:
        super().__init__(root)
        self.clock = clock

    def commit(self, *arguments: Any) -> Checkpoint:
        with self.clock.part("commit"):
            return super().commit(*arguments)


class _TimedBackend(LocalBackend):
    clock: Clock

    def exchange(self, turn: Turn, parcels: Mapping[str, Tensors], committed: Checkpoint | None) -> list[Reply]:
        with self.clock.part("clients"):
            return super().exchange(turn, parcels, committed)


def rounds(
    config: RunConfig,
    method: Method[Any],
    model: ResidentClip,
    clients: Sequence[ClientData],
    folder: Path,
    clock: Clock | None = None,
) -> Rounds:
    """The federation of this configuration, committed under ``folder``, going on from what is committed there."""
    clock = clock or Clock()
    infos = {client.id: ClientInfo.of(client) for client in clients}
    data = {client.id: client for client in clients}
    site = Site(model, method, data, infos, config.client, config.seed, config.evaluate.split)
    timeout = config.federation.round_timeout
    backend = _TimedBackend(Accelerator(cpu=True), site, folder, timeout, config.evaluate.references)
    backend.clock = clock
    log = RunLog(folder / "metrics.jsonl", method.name)
    log.console = Console(quiet=True)
    checkpoints = _TimedCheckpoints(folder / "checkpoints", clock)
    return Rounds(method, model, list(infos.values()), config.federation, config.seed, backend, checkpoints, log)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """This many torch threads for the time being."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    yield
    torch.set_num_threads(before)
