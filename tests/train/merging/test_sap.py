"""SAP's saliency against a loop over numbers and finite differences; the merge against the dense one."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.train.merging.drawn import Dense, adapter, dense
from train.lowrank import Factors
from train.merging.adapter import deltas
from train.merging.means import exact_mean
from train.merging.sap import delta_saliency, saliency, sap, sap_delta

pytestmark = pytest.mark.numeric

CLIENTS = [adapter(0), adapter(1), adapter(2)]
TARGET = {module: torch.full((b.shape[0], a.shape[1]), 0.3) for module, (b, a) in adapter(0).items()}


def loss(products: dict[str, Tensor]) -> Tensor:
    return torch.stack([(product - TARGET[module]).tanh().square().sum() for module, product in products.items()]).sum()


def gradients(client: dict[str, Factors]) -> dict[str, Factors]:
    leaves = {m: (b.clone().requires_grad_(), a.clone().requires_grad_()) for m, (b, a) in client.items()}
    loss({module: b @ a for module, (b, a) in leaves.items()}).backward()
    found: dict[str, Factors] = {}
    for module, (b, a) in leaves.items():
        assert b.grad is not None
        assert a.grad is not None
        found[module] = b.grad, a.grad
    return found


def delta_gradients(client: dict[str, Factors]) -> dict[str, Tensor]:
    leaves = {module: (b @ a).requires_grad_() for module, (b, a) in client.items()}
    grads = torch.autograd.grad(loss(leaves), list(leaves.values()))
    return dict(zip(leaves, grads, strict=True))


def loop(values: Tensor, grads: Tensor) -> Dense:
    pairs = zip(values.flatten().tolist(), grads.flatten().tolist(), strict=True)
    return np.array([abs(value * grad) for value, grad in pairs]).reshape(values.shape)


def test_saliency_is_the_product_in_absolute_value() -> None:
    client, grads, dense_grads = CLIENTS[0], gradients(CLIENTS[0]), delta_gradients(CLIENTS[0])
    scores, products, delta_scores = saliency(client, grads), deltas([client])[0], delta_saliency(client, dense_grads)
    for module in client:
        for side in (0, 1):
            np.testing.assert_array_equal(scores[module][side].numpy(), loop(client[module][side], grads[module][side]))
        expected = loop(products[module], dense_grads[module])
        np.testing.assert_array_equal(delta_scores[module].numpy(), expected)


def test_saliency_is_what_zeroing_would_cost_to_first_order() -> None:
    """(L(θ) − L(θ without a share ε of one entry)) / ε."""
    client, module, share = CLIENTS[0], "block.2.attn", 1e-6
    scores = saliency(client, gradients(client))
    products = {name: b @ a for name, (b, a) in client.items()}
    b, a = client[module]
    for row, column in ((0, 0), (1, 4), (1, 8)):
        less, more = a.clone(), a.clone()
        less[row, column] *= 1 - share
        more[row, column] *= 1 + share
        change = loss(products | {module: b @ more}) - loss(products | {module: b @ less})
        assert abs(float(change)) / (2 * share) == pytest.approx(float(scores[module][1][row, column]), rel=1e-5)


def lowest_masked(values: list[Dense], scores: list[Dense], ratio: float) -> list[Dense]:
    flat, order = np.concatenate([v.ravel() for v in values]), np.concatenate([s.ravel() for s in scores])
    flat[np.argsort(order, kind="stable")[: int(ratio * len(flat))]] = 0.0
    parts = np.split(flat, np.cumsum([v.size for v in values])[:-1])
    return [part.reshape(v.shape) for part, v in zip(parts, values, strict=True)]


def test_nineteen_of_twenty_entries_are_masked_where_no_ratio_is_given() -> None:
    (client, *_), grads = CLIENTS, gradients(CLIENTS[0])
    factors = [factor for pair in sap([client], [grads]).values() for factor in pair]
    entries = sum(factor.numel() for factor in factors)
    assert sum(int(factor.eq(0).sum()) for factor in factors) == int(0.95 * entries)
    products = sap_delta([client], [delta_gradients(client)], rank=64)
    for module, (b, a) in sap_delta([client], [delta_gradients(client)], rank=64, ratio=0.95).items():
        assert torch.equal(products[module][0] @ products[module][1], b @ a)


def test_merge_equals_the_dense_evaluation() -> None:
    merged = sap(CLIENTS, [gradients(client) for client in CLIENTS], ratio=0.5)
    total = {module: np.zeros(target.shape) for module, target in TARGET.items()}
    for client in CLIENTS:
        names = sorted(client)
        values = [client[module][side].numpy().copy() for module in names for side in (1, 0)]
        grads = gradients(client)
        scores = [loop(client[module][side], grads[module][side]) for module in names for side in (1, 0)]
        masked = lowest_masked(values, scores, 0.5)
        for i, module in enumerate(names):
            total[module] += masked[2 * i + 1] @ masked[2 * i] / len(CLIENTS)
    for module, factors in merged.items():
        np.testing.assert_allclose(dense(factors), total[module], rtol=0, atol=1e-12)


def test_dense_merge_equals_the_dense_evaluation_up_to_the_error_it_reports() -> None:
    merged = sap_delta(CLIENTS, [delta_gradients(client) for client in CLIENTS], ratio=0.5, rank=2)
    total = {module: np.zeros(target.shape) for module, target in TARGET.items()}
    for client in CLIENTS:
        names = sorted(client)
        values = [dense(client[module]) for module in names]
        scores = [loop(torch.tensor(v), delta_gradients(client)[m]) for m, v in zip(names, values, strict=True)]
        for module, masked in zip(names, lowest_masked(values, scores, 0.5), strict=True):
            total[module] += masked / len(CLIENTS)
    for module, factors in merged.items():
        error = np.linalg.norm(dense(factors) - total[module]) / np.linalg.norm(total[module])
        assert merged.errors[module] == pytest.approx(error, rel=1e-9)
        assert error > 0.01


def test_without_masking_it_is_the_exact_mean() -> None:
    merged = sap(CLIENTS, [gradients(client) for client in CLIENTS], ratio=0.0)
    whole = sap_delta(CLIENTS, [delta_gradients(client) for client in CLIENTS], ratio=0.0, rank=6)
    for module, mean in exact_mean(CLIENTS).items():
        np.testing.assert_array_equal(dense(merged[module]), dense(mean))
        np.testing.assert_allclose(dense(whole[module]), dense(mean), rtol=0, atol=1e-12)


def test_gradients_that_do_not_fit_are_refused() -> None:
    client, grads = CLIENTS[0], gradients(CLIENTS[0])
    with pytest.raises(ValueError, match=r"^block\.2\.attn: has no gradient\.$"):
        saliency(client, {module: g for module, g in grads.items() if module != "block.2.attn"})
    with pytest.raises(ValueError, match=r"^new: has a gradient but no factors\.$"):
        saliency(client, grads | {"new": grads["block.2.attn"]})
    with pytest.raises(ValueError, match=r"^block\.2\.attn: a gradient of shape \(4, 3\) for a tensor of \(4, 2\)\.$"):
        saliency(client, grads | {"block.2.attn": (torch.ones(4, 3), torch.ones(3, 9))})
    with pytest.raises(ValueError, match=r"^block\.2\.attn: saliency holds a value that is not finite"):
        sap([client], [grads | {"block.2.attn": (torch.full((4, 2), torch.nan), torch.ones(2, 9))}])
