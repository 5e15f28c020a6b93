"""The gate against the formulas of docs/methods.md#pfedmoap, written out once more in float64 NumPy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from adapters_store.personal.gate import Gate, gate_width, initial_gate
from adapters_store.personal.heads import MixtureHead
from tests.floats import check_close

pytestmark = pytest.mark.numeric

Array = NDArray[np.float64]
TAU, LAMBDA = 100.0, 0.5


def units(*shape: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)), dim=-1)


def random_gate(features: int, seed: int) -> Gate:
    gate = Gate(features).double()
    random = torch.Generator().manual_seed(seed)
    for parameter in gate.parameters():  # biases too, which start at zero
        parameter.data = 0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=random)
    return gate


def formulas(x: Array, texts: Array, gate: dict[str, Array]) -> tuple[Array, Array]:
    """λ τ x·t_L + τ ⟨pool(x), G(x, c)⟩ and the mean attention, image by image, class by class, head by head."""
    width = 128 if x.shape[1] >= 128 else x.shape[1] // 4
    size = width // 8

    def pool(t: Array) -> Array:
        return t[:: x.shape[1] // width][:width]

    def affine(name: str, t: Array) -> Array:
        return gate[f"{name}.weight"] @ t + gate[f"{name}.bias"]

    experts, classes = texts.shape[:2]
    logits, weights = np.zeros((len(x), classes)), np.zeros((len(x), classes, experts))
    for b, image in enumerate(x):
        query = affine("query", pool(image))
        for c in range(classes):
            pooled = [pool(texts[e, c]) for e in range(experts)]
            keys, values = ([affine(name, t) for t in pooled] for name in ("key", "value"))
            joined = []
            for h in range(8):
                part = slice(h * size, (h + 1) * size)
                scores = np.array([10 * query[part] @ key[part] for key in keys])
                attention = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
                weights[b, c] += attention / 8
                joined.append(sum(a * value[part] for a, value in zip(attention, values, strict=True)))
            mixed = affine("output", np.concatenate(joined))
            logits[b, c] = LAMBDA * TAU * image @ texts[0, c] + TAU * pool(image) @ mixed
    return logits, weights


@pytest.mark.parametrize("features", [1024, 640, 512, 128, 64])
@pytest.mark.parametrize(("batch", "experts"), [(1, 1), (3, 2), (7, 10)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_it_computes_the_formulas(features: int, batch: int, experts: int, dtype: torch.dtype) -> None:
    gate = random_gate(features, seed=batch)
    x, texts = units(batch, features, seed=1), units(experts, 4, features, seed=2)
    expected = formulas(x.numpy(), texts.numpy(), {n: p.detach().numpy() for n, p in gate.named_parameters()})
    head = MixtureHead(torch.tensor(TAU, dtype=dtype), texts[0].to(dtype), texts[1:].to(dtype), gate.to(dtype), LAMBDA)
    with torch.no_grad():
        logits, attention = head.explained(x.to(dtype))
    terms = features + 3 * 128 + 10  # the pooled vector through three linears, scores and experts
    check_close(logits, expected[0], terms, unit=torch.finfo(dtype).eps / 2)
    check_close(attention, expected[1], terms, unit=torch.finfo(dtype).eps / 2)
    check_close(attention.sum(-1), torch.ones(batch, 4), experts + 8)


def test_gradients_are_those_of_torchs_attention() -> None:
    """The same function through ``nn.MultiheadAttention``, whose own scale 1/√d_k is taken out of the query."""
    gate, x, texts = random_gate(512, seed=5), units(6, 512, seed=1), units(3, 4, 512, seed=2).requires_grad_()
    weight = torch.randn(6, 4, dtype=torch.float64)
    (gate(x, texts)[0] * weight).sum().backward()
    found, texts.grad = texts.grad, None
    torchs, stretch = torch.nn.MultiheadAttention(128, 8, batch_first=True).double(), 10 * (128 / 8) ** 0.5
    torchs.in_proj_weight.data = torch.cat([stretch * gate.query.weight, gate.key.weight, gate.value.weight]).detach()
    torchs.in_proj_bias.data = torch.cat([stretch * gate.query.bias, gate.key.bias, gate.value.bias]).detach()
    torchs.out_proj.load_state_dict(gate.output.state_dict())
    pooled, experts = x[:, ::4], texts[..., ::4].transpose(0, 1)  # (B, 128), (C, E, 128)
    mixed, _ = torchs(pooled.expand(4, -1, -1), experts, experts)  # (C, B, 128)
    ((mixed * pooled).sum(-1).T * weight).sum().backward()
    torch.testing.assert_close(found, texts.grad, rtol=1e-8, atol=1e-10)
    query, key, value = torchs.in_proj_weight.grad.chunk(3)
    for ours, theirs in (
        (gate.query.weight, stretch * query), (gate.key.weight, key), (gate.value.weight, value),
        (gate.output.weight, torchs.out_proj.weight.grad), (gate.output.bias, torchs.out_proj.bias.grad),
    ):  # fmt: skip
        torch.testing.assert_close(ours.grad, theirs, rtol=1e-8, atol=1e-10)


def test_its_start_is_a_function_of_the_generator() -> None:
    first, again, other = (initial_gate(64, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["query.weight"], other["query.weight"])
    Gate(64).load_state_dict(first)


@pytest.mark.parametrize("features", [100, 24, 3])
def test_a_width_that_the_heads_do_not_divide_is_refused(features: int) -> None:
    with pytest.raises(ValueError, match=f"joint embedding is {features} wide"):
        gate_width(features)
