"""A run whose uploads are differentially private: its mechanism before the first round, its costs after the last."""

import importlib.util
import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from adapters_store.disk.files import make_folder
from train.federation.optimise import step_count
from train.federation.rounds import participants
from train.methods.contract import ClientInfo, Method, Turn
from train.privacy.accounting import Costs, Exposure, costs, noise_for
from train.privacy.dp_sgd import Mechanism, sampling_rate
from train.run.config import RunConfig
from train.sections import ClientConfig, DPConfig

KEY_FILE: Final = "noise.key"


def mechanism_of(
    config: RunConfig, method: Method[Any], clients: Sequence[ClientInfo], folder: Path
) -> Mechanism | None:
    """What makes training turns private, where the configuration asks for it; ValueError where it cannot be had."""
    dp = config.privacy.dp
    if dp is None:
        return None
    check_ready(dp, clients)
    exposures = planned(config, method, clients)
    sigmas = {client: _noise_multiplier(dp, exposure) for client, exposure in exposures.items()}
    return Mechanism(dp.clip_norm, sigmas, secret_key(folder) if dp.secure else config.seed, dp.secure)


def costs_of(
    config: RunConfig, mechanism: Mechanism | None, clients: Sequence[ClientInfo], metrics: Iterable[Mapping[str, Any]]
) -> Costs | None:
    """What the uploads of the logged run cost; None where they were not private."""
    dp = config.privacy.dp
    if dp is None or mechanism is None:
        return None
    return costs(dp, mechanism.noise_multipliers, taken(config, clients, metrics))


def _noise_multiplier(dp: DPConfig, exposure: Exposure) -> float:
    if dp.noise_multiplier is not None:
        return dp.noise_multiplier
    assert dp.target_epsilon is not None  # DPConfig holds exactly one of the two
    return noise_for(exposure, dp.target_epsilon, dp.delta)


def planned(config: RunConfig, method: Method[Any], clients: Sequence[ClientInfo]) -> dict[str, Exposure]:
    """What every client will be exposed to if all goes well: the rounds it will be drawn for are known beforehand."""
    turns: Counter[str] = Counter()
    for number in range(1, config.federation.rounds + 1):
        for client in participants(clients, config.federation.clients_per_round, config.seed, number):
            turns[client.id] += method.exchanges(client, number, client.id not in turns)
    return _exposures(config.client, clients, turns)


def taken(
    config: RunConfig, clients: Sequence[ClientInfo], metrics: Iterable[Mapping[str, Any]]
) -> dict[str, Exposure]:
    """What every client was exposed to, from the lines of the run's log.

    A turn counts whether its upload was used, refused or late: it may have left the client all the same. A round played
    again after a kill is logged once and costs nothing more: it draws the same samples and noise, the same bits leave.
    """
    turns = Counter(str(line["client"]) for line in metrics if line["phase"] == "train")
    return _exposures(config.client, clients, turns)


def _exposures(config: ClientConfig, clients: Sequence[ClientInfo], turns: Mapping[str, int]) -> dict[str, Exposure]:
    return {
        client.id: Exposure(
            sampling_rate(config, client.examples),
            turns.get(client.id, 0) * step_count(config, client.examples, Turn("train", 1)),
        )
        for client in clients
    }


def check_ready(dp: DPConfig, clients: Sequence[ClientInfo]) -> None:
    """ValueError where the extra is not installed, or δ would let a client's examples be given away whole."""
    missing = [name for name in ("opacus", "dp_accounting") if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"privacy.dp: {missing[0]} is not installed; pip install -e '.[privacy]', or leave it out")
    largest = max(clients, key=lambda client: client.examples)
    if dp.delta * largest.examples >= 1:
        raise ValueError(
            f"privacy.dp.delta: found {dp.delta:g}; {largest.id} holds {largest.examples} examples, so less than "
            f"1/{largest.examples} is allowed"
        )


def secret_key(folder: Path) -> int:
    """The run's secret, drawn from the operating system by whichever process asks first, and kept in its folder.

    It is kept so that a round played again after a kill draws the same noise: other noise over the same gradients would
    be a second release. Raises ValueError where a run that has begun lacks it.
    """
    path = folder / KEY_FILE
    if not path.exists():
        if (folder / "config.json").exists():
            raise ValueError(f"privacy.dp.secure: {path} is missing, so this run cannot go on; start another")
        make_folder(folder)
        descriptor, partial = tempfile.mkstemp(dir=folder)  # readable by its owner alone
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{secrets.randbits(256):064x}\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process of this run was first
            os.link(partial, path)
        os.unlink(partial)
    return int(path.read_text(), 16)
