"""Pilot's connector, between the vision tower's features and the language model, for trainer and gateway.

x(n) = Σ_i P_i(n) (ψ_i(H) + c_i(H))(n) + ψ_s(H)(n): task adapters ψ_i, cross-task adapters c_i beside those received
from other tasks, a router's mixture P of the experts per token, the client adapter ψ_s (Xiong et al., AAAI 2025;
docs/methods.md#pilot). Every part may be absent but the first task adapter. Letters: N visual tokens, V width of the
vision tower, W width of the language model, J two-layer adapters (Mlp), h their hidden width, T experts.

In ``connector.safetensors``: ``experts.<i>.task.…`` (expert 0 is the client's own task), ``experts.<i>.cross.…``,
``client.…``, each with ``linear_1.weight`` (h, V), ``linear_1.bias``, ``linear_2.weight`` (W, h), ``linear_2.bias``
as in a Hugging Face LLaVA's projector; and ``router.weight`` (T, V), a row an expert.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CONNECTOR: Final = "connector.safetensors"
ROUTER: Final = "router.weight"
CLIENT: Final = "client"
TASK: Final = "experts.0.task"
"""The first expert: the client's own task's adapter, and the only one where nothing is mixed."""
PARTS: Final = ("linear_1.weight", "linear_1.bias", "linear_2.weight", "linear_2.bias")
EXPERT = re.compile(r"experts\.(\d+)\.task\.linear_1\.weight")


class Mlp(NamedTuple):
    """A two-layer adapter with GELU between: V → h → W."""

    weight_1: Tensor  # (h, V)
    bias_1: Tensor  # (h,)
    weight_2: Tensor  # (W, h)
    bias_2: Tensor  # (W,)

    def __call__(self, features: Tensor) -> Tensor:
        """(…, W) of features (…, V)."""
        return F.linear(F.gelu(F.linear(features, self.weight_1, self.bias_1)), self.weight_2, self.bias_2)


class Stack(NamedTuple):
    """J adapters of one shape side by side, so that all of them are two matrix products."""

    weight_1: Tensor  # (J·h, V)
    bias_1: Tensor  # (J·h,)
    weight_2: Tensor  # (W, J·h)
    bias_2: Tensor  # (J, W)


@dataclass(frozen=True)
class Connector:
    """The parts that are there. ``experts``: the adapters of each, whose outputs add up; the client's own first."""

    experts: tuple[tuple[Mlp, ...], ...]
    router: Tensor | None  # (T, V); uniform where None
    client: Mlp | None

    @property
    def adapters(self) -> list[Mlp]:
        """All of them, in the order of ``weights``' columns."""
        every = [adapter for expert in self.experts for adapter in expert]
        return every if self.client is None else [*every, self.client]

    def logits(self, features: Tensor) -> Tensor:
        """The router's (…, T) float32 of features (…, V); zero where there is none."""
        if self.router is None:
            return features.new_zeros((*features.shape[:-1], len(self.experts)), dtype=torch.float32)
        return F.linear(features.float(), self.router.float())

    def weights(self, probabilities: Tensor) -> Tensor:
        """(…, J) how much each of ``adapters`` counts, from the experts' probabilities (…, T); the client's: 1."""
        own = [i for i, expert in enumerate(self.experts) for _ in expert]
        spread = probabilities[..., own]
        return spread if self.client is None else F.pad(spread, (0, 1), value=1.0)

    def __call__(self, features: Tensor) -> Tensor:
        """Soft tokens (…, N, W) of features (…, N, V)."""
        probabilities = self.logits(features).softmax(-1)
        return mixture(stack(self.adapters), self.weights(probabilities), features)


def stack(adapters: Sequence[Mlp]) -> Stack:
    """The adapters side by side, differentiable in each of them."""
    first, bias, second, last = zip(*adapters, strict=True)
    return Stack(torch.cat(first), torch.cat(bias), torch.cat(second, 1), torch.stack(last))


def mixture(stacked: Stack, weights: Tensor, features: Tensor) -> Tensor:
    """Σ_j w_j(n) ψ_j(H)(n), (…, N, W), of features (…, N, V) under weights (…, N, J).

    W₂ of all adapters is applied to the weighted hidden layers at once: no adapter's output is formed by itself.
    """
    weights = weights.to(features.dtype)
    hidden = F.gelu(F.linear(features, stacked.weight_1, stacked.bias_1))
    hidden = hidden.unflatten(-1, (len(stacked.bias_2), -1)) * weights[..., None]
    return F.linear(hidden.flatten(-2), stacked.weight_2) + weights @ stacked.bias_2


def read_mlp(tensors: Mapping[str, Tensor], name: str) -> Mlp:
    """The adapter of that name. Raises ValueError where a tensor of it is missing."""
    for part in PARTS:
        if f"{name}.{part}" not in tensors:
            raise ValueError(f"tensor {name}.{part} of {CONNECTOR} is missing")
    return Mlp(*(tensors[f"{name}.{part}"] for part in PARTS))


def read_connector(tensors: Mapping[str, Tensor]) -> Connector:
    """The connector that these tensors make. Raises ValueError where some are missing, left over, or do not fit."""
    numbers = sorted(int(found[1]) for name in tensors if (found := EXPERT.fullmatch(name)))
    if not numbers or numbers != list(range(len(numbers))):
        raise ValueError(f"{CONNECTOR} holds experts {numbers}: they must count up from 0")
    experts = []
    for i in numbers:
        crossed = f"experts.{i}.cross.{PARTS[0]}" in tensors
        names = [f"experts.{i}.task", f"experts.{i}.cross"][: 1 + crossed]
        experts.append(tuple(read_mlp(tensors, name) for name in names))
    client = read_mlp(tensors, CLIENT) if f"{CLIENT}.{PARTS[0]}" in tensors else None
    connector = Connector(tuple(experts), tensors.get(ROUTER), client)
    _check(connector, tensors)
    return connector


def _check(connector: Connector, tensors: Mapping[str, Tensor]) -> None:
    known = len(PARTS) * len(connector.adapters) + (connector.router is not None)
    if known != len(tensors):
        raise ValueError(f"{CONNECTOR} holds {len(tensors)} tensors, of which {known} belong to its connector")
    hidden, vision = connector.experts[0][0].weight_1.shape
    width = len(connector.experts[0][0].bias_2)
    wanted = dict(zip(PARTS, ((hidden, vision), (hidden,), (width, hidden), (width,)), strict=True))
    for name, tensor in sorted(tensors.items()):
        shape = (len(connector.experts), vision) if name == ROUTER else wanted[_part(name)]
        if tuple(tensor.shape) != shape:
            raise ValueError(f"tensor {name} of {CONNECTOR} has shape {list(tensor.shape)}, expected {list(shape)}")


def _part(name: str) -> str:
    return ".".join(name.split(".")[-2:])
