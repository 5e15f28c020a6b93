"""What Pilot's server keeps: groups of tensors, each the mean of what clients sent of it (docs/methods.md#pilot).

``task/<t>/…``: task adapters, the base's projector until a client of that task trained; ``mean/…``: the LoRA for
clients that have none of their own; ``lora/<client>/…``: the LoRA that a client is sent. Beside each group that is a
mean, ``known/<group>`` says whether it ever was one, ``round/<group>`` what weight this round's has so far.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from adapters_store.personal.connector import CLIENT, ROUTER
from train.aggregation.averaging import weighted_mean
from train.methods.contract import ServerContext, Update
from train.models.lora import is_lora
from train.tensors import Tensors

MEAN = "mean/"
PLACE = re.compile(r"^(clip\.\d+\.)?")
OWN = "experts.0.task."
"""A client's own task adapter, in its connector."""


def group_means(
    state: Tensors, updates: Sequence[Update], context: ServerContext, weighting: Literal["examples", "uniform"]
) -> Tensors:
    """The state with every group's mean brought up to date by these updates.

    What a client sends after stage 1 counts only where there never was a mean. After stage 2, the updates of both
    exchanges of a round are averaged together: newcomers' arrive in the second, everybody else's in the first.
    """
    new = dict(state)
    if context.exchange == 0:
        new |= {name: torch.zeros_like(tensor) for name, tensor in state.items() if name.startswith("round/")}
    task_of = {client.id: client.task for client in context.clients}
    for task in sorted({task_of[update.client] for update in updates}):
        sent = [update for update in updates if task_of[update.client] == task]
        new |= _mean(new, f"task/{task}/", sent, [own_part(u.tensors) for u in sent], context, weighting)
    return new | _mean(new, MEAN, updates, [lora_part(u.tensors) for u in updates], context, weighting)


def _mean(
    state: Tensors,
    name: str,
    updates: Sequence[Update],
    held: Sequence[Tensors],
    context: ServerContext,
    weighting: Literal["examples", "uniform"],
) -> Tensors:
    """The group ``name`` with these updates' tensors in its mean."""
    final = [context.exchanges.get(u.client, 1) == context.exchange + 1 for u in updates]
    counts = final if any(final) or state[f"known/{name}"] else [True] * len(updates)
    weights = [float(u.examples) if weighting == "examples" else 1.0 for u in updates]
    counted = [(w, tensors) for w, tensors, counts_now in zip(weights, held, counts, strict=True) if counts_now]
    if not counted:
        return {}
    if before := float(state[f"round/{name}"]):
        counted = [(before, under(state, name)), *counted]
    total = sum(weight for weight, _ in counted)
    mean = weighted_mean([tensors for _, tensors in counted], [weight / total for weight, _ in counted])
    return group(name, mean, known=1, weight=total if any(final) else 0.0)


def group(name: str, tensors: Mapping[str, Tensor], known: int = 0, weight: float = 0.0) -> Tensors:
    """A group's tensors and marks."""
    marks = {f"known/{name}": torch.tensor(known), f"round/{name}": torch.tensor(weight, dtype=torch.float64)}
    return put_under(name, tensors) | marks


def tasks(state: Mapping[str, Tensor]) -> list[str]:
    """The federation's tasks, sorted."""
    return sorted(name.split("/")[2] for name in state if name.startswith("known/task/"))


def under(state: Mapping[str, Tensor], prefix: str) -> Tensors:
    """The tensors whose names begin so, under the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def put_under(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """The same tensors under longer names."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def lora_part(tensors: Mapping[str, Tensor]) -> Tensors:
    """The LoRA factors among a client's tensors."""
    return {name: tensor for name, tensor in tensors.items() if is_lora(name)}


def uploaded_part(tensors: Mapping[str, Tensor]) -> Tensors:
    """What Pilot lets leave a client: LoRA and the client's own task adapter."""
    return {name: tensor for name, tensor in tensors.items() if is_lora(name) or OWN in name}


def own_part(tensors: Mapping[str, Tensor]) -> Tensors:
    """The client's own task adapter, under names that say no more whose it is."""
    return {name.replace(OWN, ""): tensor for name, tensor in tensors.items() if OWN in name}


def as_expert(number: int, adapter: Mapping[str, Tensor]) -> Tensors:
    """A task adapter as that expert of a connector; what lies in the vision tower stays under its layer."""
    return {PLACE.sub(rf"\g<1>experts.{number}.task.", name, count=1): tensor for name, tensor in adapter.items()}


def is_client(name: str) -> bool:
    """Whether a tensor of this name is the client adapter's."""
    return f".{CLIENT}." in f".{name}"


def in_stage_1(name: str) -> bool:
    """Whether a tensor of the connector of this name is trained in stage 1."""
    return OWN in name or is_client(name)


def in_stage_2(name: str) -> bool:
    """Whether it is trained in stage 2."""
    return OWN in name or ".cross." in name or name.endswith(ROUTER)
