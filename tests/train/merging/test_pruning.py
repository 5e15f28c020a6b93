"""How much is masked, where, and what rescaling keeps."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.train.merging.drawn import SHAPES, adapter, dense
from train.lowrank import Factors, product_norm
from train.merging.adapter import Computed, write_adapter
from train.merging.pruning import (
    Rescale,
    delta_magnitude_saliency,
    delta_random_saliency,
    magnitude_saliency,
    prune,
    pruned_deltas,
    random_saliency,
)

pytestmark = pytest.mark.numeric


def zeros(tensor: Tensor) -> int:
    return int((tensor == 0).sum())


@pytest.mark.parametrize("ratio", [0.0, 0.29, 0.5, 0.95, 0.99, 1.0])
def test_exactly_the_floor_is_masked(ratio: float) -> None:
    before = adapter(0)
    sizes = [part.numel() for factors in before.values() for part in factors]
    pruned = prune(before, magnitude_saliency(before), ratio)
    percent = round(100 * ratio)
    assert sum(zeros(part) for factors in pruned.values() for part in factors) == percent * sum(sizes) // 100
    for factors in prune(before, magnitude_saliency(before), ratio, "tensor").values():
        for part in factors:
            assert zeros(part) == percent * part.numel() // 100
    masked = dict(pruned_deltas(before, delta_magnitude_saliency(before), ratio))
    whole = sum(d_out * d_in for d_out, d_in in SHAPES.values())
    assert sum(zeros(delta) for delta in masked.values()) == percent * whole // 100
    for delta in dict(pruned_deltas(before, delta_magnitude_saliency(before), ratio, "tensor")).values():
        assert zeros(delta) == percent * delta.numel() // 100


def test_global_masks_the_lowest_of_all_and_ties_go_in_file_order() -> None:
    before = adapter(0)
    flat = {name: tensor.flatten() for name, tensor in sorted(write_adapter(before).items())}
    everything = np.abs(np.concatenate([values.numpy() for values in flat.values()]))
    order = np.argsort(everything, kind="stable")
    pruned = write_adapter(prune(before, magnitude_saliency(before), 0.5))
    result = np.concatenate([pruned[name].flatten().numpy() for name in flat])
    assert np.array_equal(np.flatnonzero(result == 0), np.sort(order[: len(order) // 2]))

    equal = {module: (torch.ones_like(b), torch.ones_like(a)) for module, (b, a) in before.items()}
    tied = write_adapter(prune(equal, equal, 0.5))
    kept = np.concatenate([tied[name].flatten().numpy() for name in flat])
    assert kept.tolist() == [0.0] * (len(kept) // 2) + [1.0] * (len(kept) - len(kept) // 2)


@pytest.mark.parametrize("rescale", ["norm", "robust"])
def test_what_is_masked_to_zero_stays_zero(rescale: Rescale) -> None:
    before = adapter(0)
    scores = magnitude_saliency(before)
    scores["block.2.attn"] = torch.zeros(4, 2), torch.zeros(2, 9)  # 26 of 68 entries, all below the others
    pruned = prune(before, scores, 0.5, rescale=rescale)
    assert product_norm(*pruned["block.2.attn"]) == 0.0
    assert all(bool(part.isfinite().all()) for factors in pruned.values() for part in factors)


def test_norm_is_kept_layer_by_layer() -> None:
    before = adapter(0)
    pruned = prune(before, magnitude_saliency(before), 0.4, rescale="norm")
    masked = dict(pruned_deltas(before, delta_magnitude_saliency(before), 0.4, rescale="norm"))
    for module, factors in before.items():
        expected = np.linalg.norm(dense(factors))
        assert product_norm(*pruned[module]) == pytest.approx(expected, rel=1e-12)
        assert float(masked[module].norm()) == pytest.approx(expected, rel=1e-12)


def test_robust_scales_rows_by_what_masking_took() -> None:
    before = {"m": (torch.eye(2, dtype=torch.float64), torch.tensor([[4.0, 3.0, 1.0], [8.0, 1.0, 1.0]]))}
    scores = {"m": (torch.full((2, 2), 9.0), torch.tensor([[9.0, 9.0, 0.0], [9.0, 0.0, 0.0]]))}
    ((b, a),) = prune(before, scores, 0.3, rescale="robust").values()  # ⌊.3 · 10⌋ = 3 entries, all of A
    assert a.tolist() == [[4.0, 3.0, 0.0], [8.0, 0.0, 0.0]]
    assert torch.allclose(b, torch.diag(torch.tensor([8 / 7, 10 / 8], dtype=torch.float64)))
    ((_, delta),) = pruned_deltas(before, {"m": scores["m"][1]}, 0.5, rescale="robust")  # ⌊.5 · 6⌋ = 3
    assert torch.allclose(delta, b @ a)


def test_random_masks_come_from_the_seed() -> None:
    before = adapter(0)

    def masked(seed: int) -> list[bool]:
        tensors = write_adapter(prune(before, random_saliency(before, seed), 0.5))
        return [flag for name in sorted(tensors) for flag in (tensors[name] == 0).flatten().tolist()]

    assert masked(1) == masked(1) != masked(2)
    draws = delta_random_saliency(before, 1)
    assert all(torch.equal(draws[module], delta_random_saliency(before, 1)[module]) for module in before)
    assert not torch.equal(draws["block.2.attn"], delta_random_saliency(before, 2)["block.2.attn"])


def test_one_dense_tensor_at_a_time() -> None:
    """Saliency is asked for module by module in every pass, never collected."""
    before, asked = adapter(0), list[str]()
    magnitudes = delta_magnitude_saliency(before)

    def compute(module: str) -> Tensor:
        asked.append(module)
        return magnitudes[module]

    assert len(list(pruned_deltas(before, Computed(list(magnitudes), compute), 0.5))) == 3
    assert asked == 6 * list(magnitudes)


Change = Callable[[dict[str, Factors]], Mapping[str, Factors]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: {m: v for m, v in s.items() if m != "block.2.attn"}, "block.2.attn: has no saliency."),
        (
            lambda s: s | {"block.2.attn": (torch.ones(4, 3), torch.ones(2, 9))},
            r"block.2.attn: saliency of shape \(4, 3\) for a tensor of \(4, 2\).",
        ),
        (
            lambda s: s | {"block.2.attn": (torch.full((4, 2), torch.nan), torch.ones(2, 9))},
            "block.2.attn: saliency holds a value that is not finite.",
        ),
    ],
)
def test_saliency_that_does_not_fit_is_refused(change: Change, reason: str) -> None:
    before = adapter(0)
    scores = change(magnitude_saliency(before))
    with pytest.raises(ValueError, match=rf"^{reason}$"):
        prune(before, scores, 0.5)
    with pytest.raises(ValueError, match=r"^block"):
        list(pruned_deltas(before, {module: s[1] for module, s in scores.items()}, 0.5))
