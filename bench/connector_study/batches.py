"""Connectors by themselves: batches that mix clients against batches of one, and the other way to compute them.

Letters: C clients, B images of a batch, N visual tokens, V width of the features, O adapters that are a client's own.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from adapters_store.personal.connector import mixture, read_connector
from bench.connector_study.versions import connector_tensors, widths
from serve.chat.connector_batch import BatchedConnector, FrozenByDigest, batched, connect
from serve.chat.vision import Vision

CLIENTS: Final = 8
BATCHES: Final = (8, 16, 32)
"""Images in a batch; the gateway's default bound is 16."""
CPU: Final = torch.device("cpu")


@torch.inference_mode()
def measure(base: Path, repetitions: int) -> dict[str, Any]:
    """Images per second on one thread by size of batch; the ways take turns, and their medians count."""
    torch.set_num_threads(1)
    held, size, vision = FrozenByDigest(), widths(base), Vision(base, CPU)
    ready = [batched(read_connector(connector_tensors(k, size)), held, CPU) for k in range(CLIENTS)]
    measured: dict[str, Any] = {"clients": CLIENTS, "threads": 1, "images_per_second": {}}
    for images in BATCHES:
        features = torch.randn(images, *vision.sample.shape[1:], generator=torch.Generator().manual_seed(0))
        pixels = torch.randn(images, 3, vision.side, vision.side)
        mixed = [ready[i % CLIENTS] for i in range(images)]
        seconds = _medians(
            {
                "features": lambda pixels=pixels: vision.features(pixels),
                "one client": lambda features=features: connect([ready[0]] * len(features), features),
                "mixed": lambda features=features, mixed=mixed: connect(mixed, features),
                "own adapters, loop": lambda features=features: loop(ready, _by_client(features)),
                "own adapters, bmm": lambda features=features: bmm(ready, _by_client(features)),
            },
            repetitions,
        )
        measured["images_per_second"][str(images)] = {way: images / time for way, time in seconds.items()}
    measured["mixing_cost"] = {
        images: 1 - rates["mixed"] / rates["one client"] for images, rates in measured["images_per_second"].items()
    }
    return measured


def loop(connectors: Sequence[BatchedConnector], features: Tensor) -> Tensor:
    """What the clients' own adapters make of features (C, B/C, N, V), a client at a time."""
    rows = zip(connectors, features, strict=True)
    return torch.stack([mixture(one.own, one.weights(taken)[..., one.places], taken) for one, taken in rows])


def bmm(connectors: Sequence[BatchedConnector], features: Tensor) -> Tensor:
    """The same by one batched product over all clients' weights, which must be of one shape and are copied for it."""
    flat = features.flatten(1, 2)  # (C, B/C·N, V)
    weights = torch.stack([one.weights(taken)[..., one.places] for one, taken in zip(connectors, flat, strict=True)])
    first, bias, second, last = (torch.stack(parts) for parts in zip(*(one.own for one in connectors), strict=True))
    hidden = F.gelu(torch.baddbmm(bias[:, None], flat, first.transpose(1, 2)))
    hidden = (hidden.unflatten(-1, (weights.shape[-1], -1)) * weights[..., None]).flatten(-2)
    return torch.baddbmm(torch.bmm(weights, last), hidden, second.transpose(1, 2)).unflatten(1, features.shape[1:3])


def _by_client(features: Tensor) -> Tensor:
    return features.unflatten(0, (CLIENTS, -1))


def _medians(ways: dict[str, Callable[[], Tensor]], repetitions: int) -> dict[str, float]:
    """Seconds of each, in turns, after one turn that does not count."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for repetition in range(repetitions + 1):
        for way, compute in ways.items():
            began = time.perf_counter()
            compute()
            if repetition:
                seconds[way].append(time.perf_counter() - began)
    return {way: median(values) for way, values in seconds.items()}
