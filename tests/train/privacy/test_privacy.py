"""The private step: per-example gradients, joint clipping, noise, Poisson samples."""

from collections.abc import Sequence
from statistics import mean, variance
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.floats import BACK, CLIP_TEXT, check_close, joined
from tests.train.small import config
from train.data import build
from train.methods import build_method
from train.methods.contract import ClientInfo, Turn
from train.models.clip import ResidentClip
from train.models.interfaces import Personal
from train.privacy.dp_sgd import (
    AT_ONCE,
    Mechanism,
    example_gradients,
    poisson_samples,
    sampling_rate,
    set_example_gradients_,
)
from train.sections import ClientConfig

pytestmark = pytest.mark.numeric

TURN = Turn("train", 1)
METHOD = build_method(config("pfedmoap").method)
GRADIENT = BACK * (CLIP_TEXT + 4 * 128)  # additions through text tower, gate and logits
TEN = ClientConfig(local_steps=1, batch_size=10)


@pytest.fixture(params=[0, 2], ids=["prompt", "prompt and gate"])
def model(request: pytest.FixtureRequest, clip: ResidentClip) -> tuple[Personal, Any, int]:
    """A pFedMoAP client before its gate is on and after, its prepared examples, and how many."""
    method = build_method(config("pfedmoap").method)
    data = build(config("pfedmoap").data, 0)[0]
    info = ClientInfo.of(data)
    start = method.initial(clip, [info], 0)["prompt"]
    state = {**method.enrol(clip, info, 0), "prompt": start}
    if request.param:
        state["others"] = 0.1 * torch.randn(request.param, *start.shape, generator=torch.Generator().manual_seed(1))
    personal = method.build(clip, info, state, TURN)
    return personal, personal.prepare(data.train), len(data.train)


def noiseless(personal: Personal, prepared: Any, rows: Sequence[int], clip_norm: float) -> list[Tensor]:
    """What a private step without noise moves the parameters by at rate 1, times the expected number of examples."""
    values = list(personal.parameters.values())
    before = [parameter.detach().clone() for parameter in values]
    moves = Mechanism(clip_norm, {"ann": 0.0}, 0).optimiser(torch.optim.SGD(values, lr=1.0), 4.0, TURN, "ann")
    set_example_gradients_(personal, prepared, rows, METHOD, TURN)
    moves.step()
    moved = [4 * (old - new.detach()) for old, new in zip(before, values, strict=True)]
    moves.zero_grad()
    with torch.no_grad():
        for parameter, old in zip(values, before, strict=True):
            parameter.copy_(old)
    return moved


def norm(tensors: Sequence[Tensor]) -> float:
    return float(torch.cat([tensor.double().flatten() for tensor in tensors]).norm())


def alone(personal: Personal, prepared: Any, row: int) -> list[Tensor]:
    """The gradient of one example by a plain backward pass of its own."""
    return list(torch.autograd.grad(personal.outputs(prepared, [row]).loss, list(personal.parameters.values())))


def linears(personal: Personal) -> list[list[int]]:
    """The parameters' numbers, weight and bias of one linear together: shares and differences of probabilities sum to
    0, which leaves some biases a gradient of nothing but rounding."""
    names = [name.rpartition(".")[0] for name in personal.parameters]
    return [[k for k, name in enumerate(names) if name == one] for one in dict.fromkeys(names)]


def test_example_gradients_are_those_of_single_backward_passes(model: tuple[Personal, Any, int]) -> None:
    personal, prepared, count = model
    rows = [row % count for row in range(AT_ONCE + 5)]
    losses = personal.outputs(prepared, rows).extras["losses"]
    together = example_gradients(losses, list(personal.parameters.values()))
    every = [alone(personal, prepared, row) for row in rows]
    for members in linears(personal):
        size = max(norm([true[k] for k in members]) for true in every)
        for i, true in enumerate(every):
            check_close(joined(together[k][i] for k in members), joined(true[k] for k in members), GRADIENT, size)


def test_an_example_moves_the_sum_by_no_more_than_the_norm_of_all_parameters_together(
    model: tuple[Personal, Any, int],
) -> None:
    personal, prepared, count = model
    norms = [norm(alone(personal, prepared, row)) for row in range(count)]
    limit = sorted(norms)[count // 2]
    every = noiseless(personal, prepared, range(count), limit)
    for row, before in enumerate(norms):
        one = noiseless(personal, prepared, [row], limit)
        rest = noiseless(personal, prepared, [other for other in range(count) if other != row], limit)
        assert norm(one) == pytest.approx(min(before, limit), rel=1e-3)
        assert norm([a - b for a, b in zip(every, rest, strict=True)]) <= limit * (1 + 1e-3)


def test_clipping_the_prompt_alone_would_let_an_example_through(clip: ResidentClip, model: Any) -> None:
    """The check above means something: where a gate trains, it holds a part of the gradient that counts."""
    personal, prepared, count = model
    gradients = [alone(personal, prepared, row) for row in range(count)]
    limit = min(norm(gradient[:1]) for gradient in gradients)
    prompt_alone = [
        norm([limit / norm(gradient[:1]) * gradient[0], *gradient[1:]]) for gradient in gradients
    ]  # the norm an example would have, were its prompt's gradient cut to the limit
    assert (max(prompt_alone) > 1.01 * limit) == (len(personal.parameters) > 1)
    assert all(norm(noiseless(personal, prepared, [row], limit)) <= limit * (1 + 1e-4) for row in range(count))


def test_under_a_wide_norm_it_is_the_plain_sum_over_the_expected_number(model: tuple[Personal, Any, int]) -> None:
    personal, prepared, count = model
    plain = torch.autograd.grad(personal.outputs(prepared, range(count)).loss, list(personal.parameters.values()))
    found = noiseless(personal, prepared, range(count), 1e6)
    every = [alone(personal, prepared, row) for row in range(count)]
    for members in linears(personal):
        size = sum(norm([true[k] for k in members]) for true in every) / count  # examples cancel
        check_close(joined(found[k] / count for k in members), joined(plain[k] for k in members), GRADIENT, size)


class Still:
    """A model without examples: two parameters that only noise moves."""

    def __init__(self) -> None:
        self.parameters = {"one": nn.Parameter(torch.zeros(200, 200)), "two": nn.Parameter(torch.zeros(300))}


def noise(seed: int = 0, turn: Turn = TURN, client: str = "ann", secure: bool = False) -> list[Tensor]:
    """What an empty sample moves ``Still`` by, at C = 3, σ = 2 and 10 expected examples."""
    still: Any = Still()
    moves = Mechanism(3.0, {client: 2.0}, seed, secure).optimiser(
        torch.optim.SGD(still.parameters.values(), lr=1.0), 10.0, turn, client
    )
    set_example_gradients_(still, None, [], METHOD, turn)
    moves.step()
    return [parameter.detach() for parameter in still.parameters.values()]


@pytest.mark.parametrize("secure", [False, True])
def test_noise_has_the_deviation_of_the_mechanism_even_on_an_empty_sample(secure: bool) -> None:
    one, two = noise(secure=secure)
    assert float(one.std()) == pytest.approx(2 * 3 / 10, rel=0.02)
    assert float(two.std()) == pytest.approx(2 * 3 / 10, rel=0.15)
    assert abs(float(one.mean())) < 4 * 0.6 / 200
    assert abs(float((one[:, :100] * one[:, 100:]).mean())) < 4 * 0.36 / 20_000**0.5


def test_noise_is_a_function_of_seed_turn_and_client() -> None:
    base = noise()[0]
    assert torch.equal(base, noise()[0])
    others = [
        noise(seed=1)[0],
        noise(turn=Turn("train", 2))[0],
        noise(turn=Turn("train", 1, 1))[0],
        noise(client="bob")[0],
        noise(secure=True)[0],
    ]
    for i, other in enumerate(others):
        assert not any(torch.equal(other, one) for one in [base, *others[:i]])


def test_every_example_is_drawn_independently_at_the_rate() -> None:
    """Of 40 examples at rate ¼: sizes are binomial, empty samples exist, and so does every size around the mean."""
    drawn = list(poisson_samples(TEN, 40, 4000, 0, TURN, "ann"))
    sizes = [len(rows) for rows in drawn]
    assert mean(sizes) == pytest.approx(10, abs=0.2)
    assert variance(sizes) == pytest.approx(40 * 0.25 * 0.75, rel=0.1)
    for row in (0, 17, 39):
        assert sum(row in rows for rows in drawn) / 4000 == pytest.approx(0.25, abs=0.03)
    assert any(rows == [] for rows in poisson_samples(TEN.model_copy(update={"batch_size": 1}), 40, 50, 0, TURN, "ann"))


def test_samples_are_a_function_of_seed_turn_and_client() -> None:
    drawn = list(poisson_samples(TEN, 40, 5, 0, TURN, "ann"))
    assert drawn == list(poisson_samples(TEN, 40, 5, 0, TURN, "ann"))
    for other in ((1, TURN, "ann"), (0, Turn("train", 2), "ann"), (0, Turn("train", 1, 1), "ann"), (0, TURN, "bob")):
        assert drawn != list(poisson_samples(TEN, 40, 5, *other))


def test_a_client_with_no_more_than_a_batch_takes_every_example() -> None:
    assert sampling_rate(TEN, 40) == 0.25
    assert sampling_rate(TEN, 7) == 1.0
    assert list(poisson_samples(TEN, 3, 2, 0, TURN, "ann")) == [[0, 1, 2], [0, 1, 2]]
