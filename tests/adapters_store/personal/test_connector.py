"""The connector against the formula of its parts, evaluated independently in float64."""

import math

import pytest
import torch
from torch import Tensor

from adapters_store.personal.connector import PARTS, ROUTER, read_connector
from tests.floats import check_close

pytestmark = pytest.mark.numeric

ADAPTERS = ("experts.0.task", "experts.1.task", "experts.1.cross", "experts.2.task", "experts.2.cross", "client")


def tensors(
    vision: int, hidden: int, width: int, adapters: tuple[str, ...] = ADAPTERS, router: bool = True
) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(3)
    shapes = ((hidden, vision), (hidden,), (width, hidden), (width,))
    made = {
        f"{name}.{part}": torch.randn(shape, generator=random) * 0.2
        for name in adapters
        for part, shape in zip(PARTS, shapes, strict=True)
    }
    if router:
        made[ROUTER] = torch.randn(3, vision, generator=random)
    return made


def dense(held: dict[str, Tensor], features: Tensor) -> Tensor:
    """docs/methods.md#pilot, token by token and adapter by adapter: x = Σ_i P_i h_i + ψ_s(H)."""
    held, features = {name: tensor.double() for name, tensor in held.items()}, features.double()

    def adapter(name: str, token: Tensor) -> Tensor:
        first, bias, second, last = (held[f"{name}.{part}"] for part in PARTS)
        z = first @ token + bias
        return second @ (z * 0.5 * (1 + torch.erf(z / math.sqrt(2)))) + last

    def mixed(token: Tensor) -> Tensor:
        numbers = sorted({name.split(".")[1] for name in held if name.startswith("experts.")})
        scores = held[ROUTER] @ token if ROUTER in held else torch.zeros(len(numbers), dtype=torch.float64)
        total = (
            adapter("client", token)
            if f"client.{PARTS[0]}" in held
            else torch.zeros_like(held["experts.0.task.linear_2.bias"])
        )
        for i in numbers:
            share = scores[int(i)].exp() / scores.exp().sum()
            names = [n for n in (f"experts.{i}.task", f"experts.{i}.cross") if f"{n}.{PARTS[0]}" in held]
            total = total + share * sum(adapter(n, token) for n in names)
        return total

    return torch.stack([torch.stack([mixed(token) for token in image]) for image in features])


@pytest.mark.parametrize(
    ("adapters", "router"),
    [
        (ADAPTERS, True),
        (ADAPTERS[:-1], True),
        (("experts.0.task", "experts.1.task", "experts.2.task"), False),  # the global one: a uniform router
        (("experts.0.task", "client"), False),
        (("experts.0.task",), False),
    ],
)
def test_the_connector_is_the_sum_of_its_weighted_adapters(adapters: tuple[str, ...], router: bool) -> None:
    held = tensors(6, 10, 8, adapters, router)
    features = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(5))
    check_close(read_connector(held)(features), dense(held, features), terms=6 + 10 + len(adapters))


def test_it_works_in_the_shape_of_a_seven_billion_model() -> None:
    """1024 → 4096 → 4096 with 576 tokens, gradients included."""
    held = tensors(1024, 4096, 4096, ("experts.0.task", "client"), router=False)
    trained = {name: tensor.mul_(0.05).requires_grad_() for name, tensor in held.items()}
    soft = read_connector(trained)(torch.randn(1, 576, 1024, generator=torch.Generator().manual_seed(5)))
    assert soft.shape == (1, 576, 4096)
    soft.square().mean().backward()
    assert all(tensor.grad is not None and bool(tensor.grad.any()) for tensor in trained.values())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"client.linear_2.bias": None}, "tensor client.linear_2.bias of connector.safetensors is missing"),
        ({"experts.0.task.linear_1.weight": None}, r"holds experts \[1, 2\]: they must count up from 0"),
        ({"other": torch.zeros(1)}, "holds 26 tensors, of which 25 belong to its connector"),
        ({"experts.1.cross.linear_2.weight": torch.zeros(8, 9)}, r"has shape \[8, 9\], expected \[8, 10\]"),
        ({ROUTER: torch.zeros(2, 6)}, r"tensor router.weight of .* has shape \[2, 6\], expected \[3, 6\]"),
    ],
)
def test_tensors_that_make_no_connector_are_refused(change: dict[str, Tensor | None], sentence: str) -> None:
    held = {**tensors(6, 10, 8), **change}
    with pytest.raises(ValueError, match=sentence):
        read_connector({name: tensor for name, tensor in held.items() if tensor is not None})
