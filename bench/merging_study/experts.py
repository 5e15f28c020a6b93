"""Two LoRAs of the 4-bit LLaVA, each tuned on a task in a style of its own, fused into one that is asked both tasks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

from adapters_store.paths import PROJECT_ROOT
from bench.merging_study.summary import over_seeds
from train.data import ClientData, build
from train.federation.client import Site
from train.federation.evaluate import evaluate
from train.merging.adapter import Adapter, read_adapter, write_adapter
from train.merging.ataf import ataf
from train.merging.ataf_alpha import CANDIDATES, choose_alpha
from train.merging.means import exact_mean
from train.merging.ties import ties
from train.methods import build_method
from train.methods.contract import ClientInfo, Turn
from train.models.lora import LoraOptions, LoraPersonal
from train.models.resident import load_resident
from train.run.config import RunConfig
from train.tensors import Tensors

TASKS: Final = {"caption": "sketch", "ground": "paint"}
"""Of expert A and of expert B, with the style of its pictures."""
ANCHOR_COUNT: Final = 32


def config(seed: int) -> RunConfig:
    """Two clients; the anchors ask both tasks, in the base's public styles."""
    values: dict[str, Any] = {
        "seed": seed,
        "method": {
            "name": "ataf",
            "family": "mllm",
            "anchors": {"count": ANCHOR_COUNT, "tasks": list(TASKS)},
        },
        "base": {"path": str(PROJECT_ROOT / "bases/tiny/llava")},
        "data": {
            "name": "scenes",
            "clients": len(TASKS),
            "partition": "task_style",
            "task_styles": {task: [style] for task, style in TASKS.items()},
            "train_per_client": 96,
            "val_per_client": 0,
            "test_per_client": 100,
        },
        "federation": {"rounds": 1},
        "client": {"local_epochs": 6, "batch_size": 16, "lr": 2e-3},
        "publish": {"enabled": False},
    }
    return RunConfig.model_validate(values)


def play(seed: int, kept: Path) -> dict[str, Any]:
    """The share of right answers by merge and task, and the α that was chosen."""
    torch.set_num_threads(1)
    values = config(seed)
    clients = {client.train[0].task: client for client in build(values.data, seed)}
    method: Any = build_method(values.method)
    model: Any = load_resident(values.base, "mllm")
    adapters = [
        read_adapter(_upload(seed, task, clients[task], model, kept), method.options.lora.scale) for task in TASKS
    ]
    a, b = adapters
    logits = method.carrier.predictions(model, method.anchors(seed), a, b)
    alpha, divergences = choose_alpha(logits(a), logits(b), lambda at: logits(ataf(a, b, at)))
    rank = sum(len(next(iter(one.values()))[1]) for one in adapters)
    merges: dict[str, Adapter | None] = {
        "base": None,
        "expert A": a,
        "expert B": b,
        "linear mean": exact_mean(adapters),
        "TIES": ties(adapters, rank=rank),
        **{f"ATAF α = {at:g}": ataf(a, b, at) for at in CANDIDATES},
    }
    scores = {name: _scores(model, merge, clients) for name, merge in merges.items()}
    scores["ATAF α by JSD"] = scores[f"ATAF α = {alpha:g}"]
    return {"scores": scores, "alpha": alpha, "divergences": divergences}


def _upload(seed: int, task: str, client: ClientData, model: Any, kept: Path) -> Tensors:
    """What the expert sends, trained where it is not kept yet."""
    path = kept / f"expert-{seed}-{task}.safetensors"
    if not path.exists():
        kept.mkdir(parents=True, exist_ok=True)
        values, info = config(seed), ClientInfo.of(client)
        method = build_method(values.method)
        site = Site(model, method, {client.id: client}, {client.id: info}, values.client, seed)
        parcel = method.parcel(method.initial(model, [info], seed), info)
        partial = path.with_suffix(".partial")
        save_file(site.train(client.id, Turn("train", 1), parcel, None, timeout=3600).upload, partial)
        partial.rename(path)
    return load_file(path)


def _scores(model: Any, adapter: Adapter | None, clients: Mapping[str, ClientData]) -> dict[str, float]:
    if adapter is None:
        personal = LoraPersonal(model, None, {})
    else:
        rank = len(next(iter(adapter.values()))[1])
        personal = LoraPersonal(model, LoraOptions(rank=rank, alpha=rank), write_adapter(adapter))
    return {task: evaluate(personal, clients[task].test).mean for task in TASKS}


def summarise(found: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Of every merge the accuracy on each task and their mean, over the seeds; α of every seed."""
    rows: dict[str, Any] = {}
    for name in next(iter(found.values()))["scores"]:
        by_task = {task: [run["scores"][name][task] for run in found.values()] for task in TASKS}
        both = [sum(pair) / len(pair) for pair in zip(*by_task.values(), strict=True)]
        rows[name] = {**{task: over_seeds(values) for task, values in by_task.items()}, "both": over_seeds(both)}
    return {"rows": rows, "alpha": {str(seed): run["alpha"] for seed, run in found.items()}}


def markdown(summary: Mapping[str, Any]) -> str:
    """Accuracies in per cent."""
    lines = ["| | " + " | ".join((*TASKS, "both")) + " |", "|---" * (len(TASKS) + 2) + "|"]
    for name, row in summary["rows"].items():
        shown = [f"{100 * row[what]['mean']:.1f} ± {100 * row[what]['std']:.1f}" for what in (*TASKS, "both")]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"
