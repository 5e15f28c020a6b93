"""Example-level differential privacy of what a client uploads: DP-SGD (Abadi et al. 2016), stepped by opacus.

A private step draws each of the client's n examples with probability q, clips the gradient of each one drawn to norm C,
adds N(0, σ²C²) to their sum and divides it by q n, the expected number. A gradient is the joint one of all parameters
that move: with pFedMoAP prompt *and* gate. Were the prompt's alone clipped and noised, the gate would carry examples
into the prompt gradients of later steps, and no ε would hold (docs/methods.md#privacy).

Letters: B examples drawn, n examples of the client.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from train.methods.contract import Method, Turn
from train.models.interfaces import Personal
from train.sections import ClientConfig
from train.tensors import derive_seed, generator

AT_ONCE: Final = 32
"""Examples whose gradients are computed side by side; bounds the memory of large batches."""


@dataclass(frozen=True)
class Mechanism:
    """Clipping and noise of one federation; sampling and noise are a function of (key, turn, client)."""

    clip_norm: float  # C
    noise_multipliers: Mapping[str, float]  # σ of each client
    key: int
    secure: bool = False

    def optimiser(
        self, moves: torch.optim.Optimizer, expected: float, turn: Turn, client: str
    ) -> torch.optim.Optimizer:
        """``moves``, but a step clips and sums the ``grad_sample`` of its parameters, and noises and divides the sum.

        ``expected``: q n, what the sum is divided by. With ``secure``, noise is a sum of four draws, against reading
        an example out of a floating-point number's last bits (Holohan and Braghin 2021).
        """
        from opacus.optimizers import DPOptimizer  # of the extra `privacy`

        device = moves.param_groups[0]["params"][0].device
        random = torch.Generator(device).manual_seed(derive_seed(self.key, "noise", *astuple(turn), client))
        noised: torch.optim.Optimizer = DPOptimizer(
            moves,
            noise_multiplier=self.noise_multipliers[client],
            max_grad_norm=self.clip_norm,
            expected_batch_size=expected,
            generator=random,
            secure_mode=self.secure,
        )
        return noised


def sampling_rate(config: ClientConfig, examples: int) -> float:
    """q: batches have ``batch_size`` examples in the mean; all of them where there are no more."""
    return min(1.0, config.batch_size / examples)


def poisson_samples(
    config: ClientConfig, examples: int, steps: int, seed: int, turn: Turn, client: str
) -> Iterator[list[int]]:
    """Rows of each step's sample, which may be none: every example is drawn or not, with chance ``sampling_rate``."""
    random = generator(seed, "sample", *astuple(turn), client)
    rate = sampling_rate(config, examples)
    for _ in range(steps):
        drawn = torch.rand(examples, generator=random, dtype=torch.float64) < rate
        yield drawn.nonzero()[:, 0].tolist()


def set_example_gradients_(
    personal: Personal, prepared: Any, rows: Sequence[int], method: Method[Any], turn: Turn
) -> None:
    """Gives every parameter (…) that moves its ``grad_sample`` (B, …), which opacus clips; B may be 0.

    Raises ValueError where the method's loss is not the examples' alone: what it adds would be in nobody's gradient.
    """
    parameters = [parameter for parameter in personal.parameters.values() if parameter.requires_grad]
    if rows:
        outputs = personal.outputs(prepared, rows)
        if method.loss(outputs, turn) is not outputs.loss:  # the object itself: a term that is 0 now would not stay 0
            raise ValueError(f"privacy.dp: {method.name} has a loss beside each example's own; null is allowed")
        gradients = example_gradients(outputs.extras["losses"], parameters)
    else:
        gradients = [parameter.new_zeros(0, *parameter.shape) for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad_sample = gradient  # type: ignore[attr-defined]


def example_gradients(losses: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Of each parameter (…), the gradient (B, …) of every example's own loss; losses (B,), B ≥ 1."""
    parts = [
        torch.autograd.grad(losses, parameters, rows, retain_graph=True, is_grads_batched=True)
        for rows in torch.eye(len(losses), device=losses.device, dtype=losses.dtype).split(AT_ONCE)
    ]
    return [torch.cat(chunks) for chunks in zip(*parts, strict=True)]
