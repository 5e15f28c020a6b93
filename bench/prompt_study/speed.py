"""Time of a round and of a step on three paths that compute the same: the product's, the plain one, the reference's."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from adapters_store.personal.tensor_cache import TensorCache
from bench.prompt_study.loop import WatchedPFedMoAP, rounds, threads
from bench.prompt_study.reference import ReferencePFedMoAP
from bench.prompt_study.settings import prompt_length
from train.data import ClientData
from train.models.clip import ResidentClip
from train.models.feature_cache import MIB
from train.run.config import RunConfig

Tick = Callable[[str], None]
PATHS: Final = ("fast", "plain", "reference")


@dataclass(frozen=True)
class Played:
    """One round on one path."""

    seconds: float
    steps: list[float]  # seconds of the steps
    losses: list[float]


def measure_rounds(
    config: RunConfig,
    resident: ResidentClip,
    clients: Sequence[ClientData],
    thread_counts: Sequence[int],
    repetitions: Mapping[str, int],
    tick: Tick,
) -> dict[str, Any]:
    """Round 2 (gates on) on every path at each thread count, all from one committed round 1; medians and ratios.

    ``repetitions``: how often each path is played; the paths take turns. Round 1 is played on the fast path and fills
    the cache of image features, as it does in a run; features of texts are never kept from one repetition to the next.
    """
    with TemporaryDirectory() as folder:
        start = Path(folder) / "start"
        first = rounds(config, WatchedPFedMoAP(config.method), resident, clients, start).play(1)[0]
        tick("round 1")
        measured = {}
        for count in thread_counts:
            played: dict[str, list[Played]] = {path: [] for path in PATHS}
            with threads(count):
                for repetition in range(max(repetitions.values())):
                    for path in (path for path in PATHS if repetition < repetitions[path]):
                        played[path].append(_second_round(path, config, resident, clients, start))
                        tick(f"{path}, {count} threads")
            measured[str(count)] = summarise(played)
    return {"first_round": {"seconds": first, "threads": torch.get_num_threads()}, "threads": measured}


def summarise(played: Mapping[str, Sequence[Played]]) -> dict[str, Any]:
    """Medians of every path, how much slower than the fast path the others are, and how far their losses differ."""
    round_seconds = {path: median(one.seconds for one in all_of) for path, all_of in played.items()}
    step_seconds = {path: median(s for one in all_of for s in one.steps) for path, all_of in played.items()}
    expected = played["fast"][0].losses
    return {
        "round_seconds": round_seconds,
        "step_seconds": step_seconds,
        "round_ratio": {path: seconds / round_seconds["fast"] for path, seconds in round_seconds.items()},
        "step_ratio": {path: seconds / step_seconds["fast"] for path, seconds in step_seconds.items()},
        "every_round_seconds": {path: [one.seconds for one in all_of] for path, all_of in played.items()},
        "steps": len(expected),
        "loss_difference": max(loss_difference(one.losses, expected) for p in played.values() for one in p),
    }


def loss_difference(found: Sequence[float], expected: Sequence[float]) -> float:
    """The largest relative difference of two runs' losses, step by step."""
    return max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))


def _second_round(
    path: str, config: RunConfig, resident: ResidentClip, clients: Sequence[ClientData], start: Path
) -> Played:
    method = (ReferencePFedMoAP if path == "reference" else WatchedPFedMoAP)(config.method)
    with TemporaryDirectory() as folder:
        copy = shutil.copytree(start, Path(folder) / "run")
        with text_path(resident, config, clients, path):
            (seconds,) = rounds(config, method, resident, clients, copy).play(2)
    return Played(seconds, method.step_seconds(), method.losses)


@contextmanager
def text_path(resident: ResidentClip, config: RunConfig, clients: Sequence[ClientData], path: str) -> Iterator[None]:
    """The resident base on its ``fast`` or ``plain`` text path, no features of texts kept from before or for later.

    Plain: every class's text whole (as far as the longest end token), and nothing kept for the next client.
    """
    texts = [resident.texts(client.class_names, prompt_length(config)) for client in clients]
    cache, shares = resident.text_cache, [text.shares_prefix for text in texts]
    if path == "plain":
        resident.text_cache = TensorCache(0)
        for text in texts:
            text.shares_prefix = False
    else:
        resident.text_cache = TensorCache(512 * MIB)
    yield
    resident.text_cache = cache
    for text, shared in zip(texts, shares, strict=True):
        text.shares_prefix = shared


def markdown(size: str, measured: Mapping[str, Any]) -> str:
    """Seconds and ratios of every path at every thread count."""
    lines = [f"| {size}, threads | path | s a round | s a step | s text with gradient | round × | step × | text × |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for count, of_rounds in measured["threads"].items():
        text = measured["text_encoding"]["threads"][count]
        for path in PATHS:
            seconds = (of_rounds["round_seconds"][path], of_rounds["step_seconds"][path], text["seconds"][path])
            ratios = (of_rounds["round_ratio"][path], of_rounds["step_ratio"][path], text["ratio"][path])
            shown = [*(f"{value:.3g}" for value in seconds), *(f"{value:.1f}" for value in ratios)]
            lines.append(f"| {count} | {path} | {' | '.join(shown)} |")
    furthest = max(of_rounds["loss_difference"] for of_rounds in measured["threads"].values())
    lines += ["", f"Largest relative difference of the losses: {furthest:.1e}.", *_whole_run(measured)]
    return "\n".join(lines) + "\n"


def _whole_run(measured: Mapping[str, Any]) -> list[str]:
    """Ten rounds, of which the first encodes every image once on the fast path."""
    first = measured["first_round"]
    timed = measured["threads"].get(str(first["threads"]))
    if timed is None:
        return []
    fast, slow = (timed["round_seconds"][path] for path in ("fast", "reference"))
    ratio = 10 * slow / (first["seconds"] + 9 * fast)
    return [f"First round, {first['threads']} threads: {first['seconds']:.1f} s; ten rounds with it: {ratio:.1f} ×."]
