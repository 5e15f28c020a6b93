"""Answers a second as clients are mixed, through the gateway and on the bare engine, and what connectors take of them.

A closed loop: as many requests in flight as there are clients, all of one client or one of each.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, Protocol

from adapters_store.store import Store
from bench.connector_study import sides, versions

CLIENTS: Final = tuple(f"c{number}" for number in range(8))
MIXES: Final = {"one": CLIENTS[:1] * len(CLIENTS), "mixed": CLIENTS}
"""Whom the requests in flight are for."""
Tick = Callable[[str], None]
Rates = dict[str, dict[str, list[float]]]  # answers a second of each repetition by side and mix


class Side(Protocol):
    """Something that answers clients."""

    async def ask(self, client: str) -> int:
        """Tokens of one answer."""


def parts(repetitions: int) -> int:
    """How often ``measure`` calls ``tick``."""
    return 1 + 2 * len(MIXES) * repetitions


async def measure(base: Path, repetitions: int, seconds: float, answer_tokens: int, tick: Tick) -> dict[str, Any]:
    """Rates of both sides, which take turns; shares of features and connectors in the gateway's mixed answers."""
    rates: Rates = {"gateway": {mix: [] for mix in MIXES}, "engine": {mix: [] for mix in MIXES}}
    tokens: set[int] = set()
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
                await play(side, CLIENTS, seconds / 4)
            tick("gateway and engine started")
            for _ in range(repetitions):
                for mix, clients in MIXES.items():
                    for name, side in (("gateway", front), ("engine", bare)):
                        before = await front.seconds()
                        rate, said = await play(side, clients, seconds)
                        rates[name][mix].append(rate)
                        tokens |= said
                        if (name, mix) == ("gateway", "mixed"):
                            after = await front.seconds()
                            spent.append({what: after[what] - before[what] for what in after})
                        tick(f"{name}, {mix}: {rate:.1f} answers/s")
    settings = {"in_flight": len(CLIENTS), "answer_tokens": sorted(tokens), "window_seconds": seconds}
    return {**settings, "answers_per_second": rates, **summarise(rates, spent)}


async def play(side: Side, clients: Sequence[str], seconds: float) -> tuple[float, set[int]]:
    """Answers a second with a request of each of ``clients`` always in flight, and the lengths that came up.

    Counted are the answers that end within the seconds; what began before the end is waited for.
    """
    ended: list[float] = []
    lengths: set[int] = set()
    began = time.perf_counter()

    async def keep_asking(client: str) -> None:
        while time.perf_counter() - began < seconds:
            lengths.add(await side.ask(client))
            ended.append(time.perf_counter() - began)

    await asyncio.gather(*(keep_asking(client) for client in clients))
    return sum(end <= seconds for end in ended) / seconds, lengths


def summarise(rates: Rates, spent: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Throughput lost by mixing, in points, and seconds and shares of an answer in the mix.

    The share counts for every answer all of the batches that it waited for, whoever shared them with it.
    """
    middle = {side: {mix: median(values) for mix, values in by_mix.items()} for side, by_mix in rates.items()}
    lost = {side: 100 * (1 - of["mixed"] / of["one"]) for side, of in middle.items()}
    total = {what: sum(one[what] for one in spent) for what in spent[0]}
    return {
        "median_answers_per_second": middle,
        "points_lost_by_mixing": lost,
        "gateways_mixing_cost_points": lost["gateway"] - lost["engine"],
        "seconds_of_an_answer": {what: total[what] / total["count"] for what in ("features", "connectors", "answers")},
        "share": {what: total[what] / total["answers"] for what in ("features", "connectors")},
    }
