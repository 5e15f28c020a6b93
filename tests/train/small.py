"""Federations of a few seconds, one for each family, on the embedded base and data."""

from pathlib import Path
from typing import Any

from accelerate import Accelerator

from train.data import build
from train.federation.checkpoint import Checkpoints
from train.federation.client import Site
from train.federation.local_backend import LocalBackend
from train.federation.log import RunLog
from train.federation.rounds import Federation
from train.methods import build_method
from train.methods.contract import ClientInfo, Method
from train.models.interfaces import ResidentModel
from train.run.config import RunConfig
from train.run.private import mechanism_of

CLIP: dict[str, Any] = {
    "method": {"name": "promptfl", "prompt": {"length": 4}},
    "base": {"path": "bases/tiny/clip"},
    "data": {
        "name": "scenes",
        "clients": 3,
        "partition": "style",
        "styles": ["sketch", "cartoon", "night"],
        "tasks": ["classify"],
        "few_shot": 2,
        "val_per_client": 4,
        "test_per_client": 12,
    },
    "federation": {"rounds": 2, "threads": 1},
    "client": {"local_steps": 3, "personal_steps": 2, "batch_size": 8, "optimizer": "sgd", "lr": 0.02},
    "publish": {"enabled": False},
}
MLLM: dict[str, Any] = {
    "method": {"name": "fedit", "lora": {"rank": 8, "alpha": 16}},
    "base": {"path": "bases/tiny/llava"},
    "data": {
        "name": "scenes",
        "clients": 2,
        "partition": "style",
        "styles": ["sketch", "inverted"],
        "tasks": ["vqa", "count"],
        "train_per_client": 8,
        "val_per_client": 2,
        "test_per_client": 6,
    },
    "federation": {"rounds": 2, "threads": 1},
    "client": {"local_steps": 2, "personal_steps": 1, "batch_size": 4},
    "publish": {"enabled": False},
}
EPOCHS = {"local_epochs": 2, "schedule": "cosine_epochs", "weight_decay": 5e-4, "clip_norm": None}
PROMPTS: dict[str, Any] = {**CLIP, "client": {**CLIP["client"], "local_steps": None, "personal_steps": 0, **EPOCHS}}
PILOT: dict[str, Any] = {
    **MLLM,
    "method": {"name": "pilot", "lora": {"rank": 8, "alpha": 16}},
    "data": {**MLLM["data"], "clients": 3, "partition": "task", "tasks": ["caption", "count"]},
    "client": {**MLLM["client"], "personal_steps": 0},
}
ONE_SHOT: dict[str, Any] = {
    **CLIP,
    "method": {"name": "sap", "lora": {"rank": 2, "alpha": 4}, "anchors": {"count": 4}},
    "federation": {"rounds": 1, "threads": 1},
    "client": {**CLIP["client"], "personal_steps": 0, "optimizer": "adamw"},
}
CONFIGS = {
    "anchored": {**ONE_SHOT, "method": {**ONE_SHOT["method"], "name": "anchored", "steps": 2}},
    "ataf": {**ONE_SHOT, "method": {**ONE_SHOT["method"], "name": "ataf"}, "data": {**CLIP["data"], "clients": 2}},
    "coop": {**PROMPTS, "method": {"name": "coop", "prompt": {"length": 4}}},
    "fedit": MLLM,
    "pfedmoap": {**PROMPTS, "method": {"name": "pfedmoap", "prompt": {"length": 4}, "experts": 1}},
    "pfedprompt": {**PROMPTS, "method": {"name": "pfedprompt", "prompt": {"length": 4}, "opt_in": "all"}},
    "pilot": PILOT,
    "promptfl": CLIP,
    "sap": {**ONE_SHOT, "method": {**ONE_SHOT["method"], "ratio": 0.5}},
}


def config(method: str, /, **sections: dict[str, Any]) -> RunConfig:
    """The small configuration of a method with these sections updated."""
    default = CONFIGS[method]
    values = {name: {**default.get(name, {}), **sections.get(name, {})} for name in default.keys() | sections.keys()}
    return RunConfig.model_validate(values)


def federation(
    config: RunConfig, model: ResidentModel, folder: Path, method: Method[Any] | None = None
) -> tuple[Federation, LocalBackend]:
    """The loop and the local backend of this configuration in this process."""
    method = method or build_method(config.method)
    clients = {client.id: client for client in build(config.data, config.seed)}
    infos = {c.id: ClientInfo.of(c) for c in clients.values()}
    mechanism = mechanism_of(config, method, list(infos.values()), folder)
    site = Site(model, method, clients, infos, config.client, config.seed, mechanism=mechanism)
    backend = LocalBackend(
        Accelerator(cpu=True), site, folder, config.federation.round_timeout, config.evaluate.references
    )
    loop = Federation(
        method,
        model,
        list(infos.values()),
        config.federation,
        config.seed,
        backend,
        Checkpoints(folder / "checkpoints"),
        RunLog(folder / "metrics.jsonl", method.name),
    )
    return loop, backend


def yaml_file(folder: Path, method: str, /, **sections: dict[str, Any]) -> Path:
    """The small configuration as a file for the command line."""
    import yaml

    path = folder / f"{method}.yaml"
    path.write_text(yaml.safe_dump(config(method, **sections).model_dump(mode="json")))
    return path
