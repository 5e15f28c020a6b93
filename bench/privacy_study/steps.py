"""What a private step costs beside a plain one: the product's own turn of local training, timed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Final

import torch

from bench.privacy_study.federations import Job, run_values
from train.data import build
from train.federation.client import Site
from train.methods import build_method
from train.methods.contract import ClientInfo, Turn
from train.models.resident import load_resident
from train.privacy.dp_sgd import Mechanism
from train.run.config import RunConfig

BATCHES: Final = (16, 32, 64)
STEPS: Final = 10
"""Steps of one timed turn, whose preparation is not worth counting."""


def measure(repetitions: int) -> list[dict[str, Any]]:
    """Milliseconds a step (median of the turns) by method and batch size, plain and private, on one thread."""
    torch.set_num_threads(1)
    rows = []
    for method in ("promptfl", "pfedmoap"):
        job = Job("scenes_colour", method, math.inf, 0, 0.03)
        config = RunConfig.model_validate(run_values(job))
        site, state = _site(config)
        for batch in BATCHES:
            client = config.client.model_copy(update={"batch_size": batch, "local_steps": STEPS})
            plain = replace(site, config=client)
            name = next(iter(site.clients))
            private = replace(plain, mechanism=Mechanism(1.0, {name: 1.0}, 0))
            milliseconds = {"plain": _time(plain, state, repetitions), "private": _time(private, state, repetitions)}
            rows.append({"method": method, "batch_size": batch, **milliseconds})
    return rows


def _site(config: RunConfig) -> tuple[Site, dict[str, torch.Tensor]]:
    """The first client, and a state in which pFedMoAP's gate is on."""
    model, method = load_resident(config.base, "clip"), build_method(config.method)
    data = build(config.data, config.seed)[0]
    info = ClientInfo.of(data)
    state = {**method.enrol(model, info, 0), **method.initial(model, [info], 0)}
    if config.method.name == "pfedmoap":
        state["others"] = state["prompt"] + 0.02 * torch.randn(config.method.experts, *state["prompt"].shape)
    return Site(model, method, {data.id: data}, {data.id: info}, config.client, 0), state


def _time(site: Site, state: dict[str, torch.Tensor], repetitions: int) -> float:
    client = next(iter(site.clients))
    parcel = {name: tensor for name, tensor in state.items() if not name.startswith("gate.")}
    turns = [site.train(client, Turn("train", n), parcel, state, math.inf).seconds for n in range(repetitions + 1)]
    return round(1000 * median(turns[1:]) / STEPS, 2)  # the first turn encodes the images


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each method and batch size."""
    lines = ["| a step of | examples | plain | private | ratio |", "|---|---|---|---|---|"]
    for row in rows:
        ratio = row["private"] / row["plain"]
        cells = f"{row['plain']:.1f} ms | {row['private']:.1f} ms | {ratio:.1f}"
        lines.append(f"| `{row['method']}` | {row['batch_size']} | {cells} |")
    return "\n".join(lines)
