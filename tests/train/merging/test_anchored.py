"""Anchored merging: the coefficients that a loss of the merge asks for."""

import pytest
import torch
from torch import Tensor

from tests.floats import check_close
from tests.train.merging.drawn import SHAPES, adapter, dense
from train.merging.adapter import Adapter
from train.merging.anchored import Loss, anchored

pytestmark = pytest.mark.numeric

CLIENTS = [adapter(seed) for seed in range(3)]
PLANTED = torch.tensor([[0.0, 2.0, 1.0], [1.0, 0.5, -1.0], [3.0, 1.0, 1.0]])  # (K, L), layers in file order
LAYERS = sorted(SHAPES)


def wanted() -> dict[str, Tensor]:
    return {
        module: torch.from_numpy(
            sum(float(PLANTED[k, i]) * dense(client[module]) for k, client in enumerate(CLIENTS)) / len(CLIENTS)
        ).float()
        for i, module in enumerate(LAYERS)
    }


def distance() -> Loss:
    target = wanted()

    def loss(merged: Adapter) -> Tensor:
        return torch.stack([(b @ a - target[module]).pow(2).sum() for module, (b, a) in merged.items()]).sum()

    return loss


def test_coefficients_that_were_planted_are_found() -> None:
    merged, coefficients = anchored(CLIENTS, distance(), steps=600, lr=0.05)
    assert list(merged) == LAYERS
    torch.testing.assert_close(coefficients, PLANTED, atol=1e-3, rtol=0)
    for module, target in wanted().items():
        b, a = merged[module]
        assert b.shape[1] == 6  # Σ r_k
        torch.testing.assert_close(b @ a, target, atol=1e-2, rtol=0)


def test_it_starts_at_the_exact_mean() -> None:
    seen: list[dict[str, Tensor]] = []

    def loss(merged: Adapter) -> Tensor:
        seen.append({module: (b @ a).detach() for module, (b, a) in merged.items()})
        return torch.stack([b.sum() for b, _ in merged.values()]).sum()

    anchored(CLIENTS, loss, steps=1)
    for module in LAYERS:
        mean = sum(dense(client[module]) for client in CLIENTS) / len(CLIENTS)
        check_close(seen[0][module], mean, terms=6)  # Σ r_k


def test_what_was_fitted_is_multiplied_by_the_gain() -> None:
    merged, coefficients = anchored(CLIENTS, distance(), steps=0, gain=1.5)
    assert torch.equal(coefficients, torch.full((3, 3), 1.5))
    for module in LAYERS:
        mean = sum(dense(client[module]) for client in CLIENTS) / len(CLIENTS)
        b, a = merged[module]
        check_close(b @ a, 1.5 * mean, terms=6)  # Σ r_k


def test_adapters_that_do_not_fit_are_refused() -> None:
    other = {"block.2.attn": CLIENTS[0]["block.2.attn"]}
    with pytest.raises(ValueError, match=r"block\.10\.attn: adapter 1 has this module, adapter 2 does not"):
        anchored([CLIENTS[0], other], distance())
