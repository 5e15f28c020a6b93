"""Answers a second as clients are mixed, through the gateway and on the bare engine, and what connectors take of them.

A closed loop: as many requests in flight as there are clients, all of one client or one of each. A shared machine's
speed drifts by more than what is looked for: short windows of both mixes alternate (one, mixed, mixed, one), each such
block is compared with itself, and processor seconds, which others' load hardly changes, stand beside the rates.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Final, Protocol

import psutil

from adapters_store.store import Store
from bench.connector_study import sides, versions
from train.compare.intervals import interval

CLIENTS: Final = tuple(f"c{number}" for number in range(8))
MIXES: Final = {"one": CLIENTS[:1] * len(CLIENTS), "mixed": CLIENTS}
"""Whom the requests in flight are for."""
ORDER: Final = ("one", "mixed", "mixed", "one")
SIDES: Final = ("gateway", "engine")
Tick = Callable[[str], None]


@dataclass(frozen=True)
class Window:
    """What one window saw."""

    rate: float  # answers a second, of those that ended within it
    processor_seconds: float  # of one answer, over every process of this benchmark
    lengths: frozenset[int]  # tokens of the answers


Windows = Mapping[str, Mapping[str, Sequence[Window]]]
"""Of each side and mix, two windows for every block."""


class Side(Protocol):
    """Something that answers clients."""

    async def ask(self, client: str) -> int:
        """Tokens of one answer."""


def parts(repetitions: int) -> int:
    """How often ``measure`` calls ``tick``."""
    return 1 + len(SIDES) * len(ORDER) * repetitions


async def measure(base: Path, repetitions: int, seconds: float, answer_tokens: int, tick: Tick) -> dict[str, Any]:
    """Blocks of windows on both sides in turn; shares of features and connectors in the gateway's mixed answers."""
    seen: dict[str, dict[str, list[Window]]] = {side: {mix: [] for mix in MIXES} for side in SIDES}
    spent: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        base = versions.endless(base, Path(folder) / "base")
        folders = versions.publish(store, base, CLIENTS)
        async with (
            sides.gateway(store, base, CLIENTS, answer_tokens) as front,
            sides.bare_engine(store, base, folders, answer_tokens) as bare,
        ):
            for side in (front, bare):  # everything has been asked once before anything is timed
                await play(side, CLIENTS, seconds)
            tick("gateway and engine started")
            for _ in range(repetitions):
                for name, side in zip(SIDES, (front, bare), strict=True):
                    for mix in ORDER:
                        before = await front.seconds()
                        window = await play(side, MIXES[mix], seconds)
                        seen[name][mix].append(window)
                        if (name, mix) == ("gateway", "mixed"):
                            after = await front.seconds()
                            spent.append({what: after[what] - before[what] for what in after})
                        tick(f"{name}, {mix}: {window.rate:.1f} answers/s")
    lengths = {tokens for side in SIDES for mix in MIXES for window in seen[side][mix] for tokens in window.lengths}
    settings = {"in_flight": len(CLIENTS), "answer_tokens": sorted(lengths), "window_seconds": seconds}
    return {**settings, **summarise(seen, spent)}


async def play(side: Side, clients: Sequence[str], seconds: float) -> Window:
    """A window with a request of each of ``clients`` always in flight; what began before its end is waited for."""
    ended: list[float] = []
    lengths: set[int] = set()
    began, used = time.perf_counter(), _processor_seconds()

    async def keep_asking(client: str) -> None:
        while time.perf_counter() - began < seconds:
            lengths.add(await side.ask(client))
            ended.append(time.perf_counter() - began)

    await asyncio.gather(*(keep_asking(client) for client in clients))
    each = (_processor_seconds() - used) / len(ended)
    return Window(sum(end <= seconds for end in ended) / seconds, each, frozenset(lengths))


def _processor_seconds() -> float:
    """User and system time so far of this process and of all that it started."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def summarise(seen: Windows, spent: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """What mixing costs on either side, block by block, and seconds and shares of an answer in the mix.

    Points: per cent of the throughput, or of the processor time of an answer, with one client. The share counts for
    every answer all of the batches that it waited for, whoever shared them with it.
    """
    lost = {
        "throughput": {side: [100 * (1 - m / o) for o, m in _blocks(seen[side], "rate")] for side in SIDES},
        "processor": {side: [100 * (m / o - 1) for o, m in _blocks(seen[side], "processor_seconds")] for side in SIDES},
    }
    total = {what: sum(one[what] for one in spent) for what in spent[0]}
    return {
        "answers_per_second": {s: {mix: [w.rate for w in seen[s][mix]] for mix in MIXES} for s in SIDES},
        "processor_seconds_of_an_answer": {
            s: {mix: [w.processor_seconds for w in seen[s][mix]] for mix in MIXES} for s in SIDES
        },
        "points_lost_by_mixing": {
            by: {side: _with_interval(points) for side, points in of.items()}
            | {"gateway's own": _with_interval([g - e for g, e in zip(of["gateway"], of["engine"], strict=True)])}
            for by, of in lost.items()
        },
        "seconds_of_an_answer": {what: total[what] / total["count"] for what in ("features", "connectors", "answers")},
        "share": {what: total[what] / total["answers"] for what in ("features", "connectors")},
    }


def _blocks(side: Mapping[str, Sequence[Window]], figure: str) -> list[tuple[float, float]]:
    """This figure in each block, of one client and of the mix, mean over the block's two windows of either."""
    one, mixed = ([getattr(window, figure) for window in side[mix]] for mix in ("one", "mixed"))
    return [(mean(one[i : i + 2]), mean(mixed[i : i + 2])) for i in range(0, len(one), 2)]


def _with_interval(points: Sequence[float]) -> dict[str, Any]:
    return {"mean": mean(points), "interval": interval(points)}
