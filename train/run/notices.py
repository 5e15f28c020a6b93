"""What a run tells the person who started it, at its beginning and at its end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adapters_store.paths import PROJECT_ROOT, default_store, resolve
from train.data import ClientData
from train.methods.contract import ClientInfo, Method
from train.run.config import RunConfig

SHOWN = 20  # clients, of larger federations


def beginning(folder: Path, clients: Sequence[ClientData], infos: Mapping[str, ClientInfo]) -> list[str]:
    """A line for the folder, and one a client: how many examples it has, of which task, what sets it apart."""
    width = max(len(client.id) for client in clients)
    lines = [
        f"  {client.id:{width}}  {len(client.train)} training, {len(client.val)} validation, {len(client.test)} test"
        f" examples; {infos[client.id].task}; {client.note}"
        for client in clients[:SHOWN]
    ]
    more = len(clients) - SHOWN
    return [f"run folder: {folder}", f"{len(clients)} clients:", *lines, *([f"  and {more} more"] if more > 0 else [])]


def ending(folder: Path, config: RunConfig, method: Method[Any], versions: Mapping[str, str]) -> list[str]:
    """Commands to go on with, ready to be copied. ``versions`` of the clients that were published, if any were."""
    store = resolve(config.publish.store or default_store()).absolute()
    where = "" if store == default_store() else f" --store {store}"
    lines = [f"results: {folder}/results.json, {folder}/curves.png"]
    if versions and config.publish.activate:
        lines.append(f"next: python -m serve{where}{_base(config, method.family)}")
    elif versions:
        client, version = next(iter(versions.items()))
        lines.append(f"next: python -m adapters_store{where} activate {client} {version}, and so for the others")
    if not method.one_shot and (config.privacy.dp is None or config.privacy.dp.target_epsilon is None):
        rounds = 2 * config.federation.rounds
        lines.append(f"more rounds: accelerate launch train/fed.py --resume {folder} --federation.rounds {rounds}")
    return lines


def _base(config: RunConfig, family: str) -> str:
    """The options by which serving has the base that was trained over; none where it is the one served by default."""
    name, option = config.base.path, {"clip": "clip", "mllm": "base"}[family]
    default = {"clip": "bases/tiny/clip", "mllm": "bases/tiny/llava"}[family]
    if resolve(name).absolute() == PROJECT_ROOT / default:
        return ""
    weights = f" --clip-pretrained {config.base.pretrained}" if config.base.pretrained else ""
    exact = " --quantization none" if family == "mllm" and not config.base.load_in_4bit else ""
    return f" --{option} {name}{weights}{exact}"
