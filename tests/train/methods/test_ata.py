"""Adaptive aggregation: weights worked out by hand, and the corners of the rule."""

import pytest
import torch

from train.methods.ata import adaptive_means, ata_weights, distances
from train.tensors import Tensors

pytestmark = pytest.mark.numeric


def client(a: float, b: float) -> Tensors:
    return {"x.lora_A.weight": torch.tensor([[a, 0.0]]), "x.lora_B.weight": torch.tensor([[b], [0.0]])}


def test_three_clients_by_hand() -> None:
    """d(0, 1) = 3, d(0, 2) = 4 with s = 2: B's difference of 2 counts 4. M = 2, n = 10, 20, 30."""
    clients = [client(0, 0), client(3, 0), client(0, 2)]
    assert distances(clients, 2.0)[0].tolist() == [0.0, 3.0, 4.0]
    assert distances(clients, 2.0)[1].tolist() == [3.0, 0.0, 5.0]
    own = 10 / (10 + 20 + 30)
    near, far = (1 - own) * (1 / 3) / (1 / 3 + 1 / 4), (1 - own) * (1 / 4) / (1 / 3 + 1 / 4)
    assert ata_weights(0, [0.0, 3.0, 4.0], [10, 20, 30], 2) == pytest.approx([own, near, far])
    mean = adaptive_means(clients, [10, 20, 30], 2, 2.0)[0]
    assert mean["x.lora_A.weight"][0, 0].item() == pytest.approx(3 * near)
    assert mean["x.lora_B.weight"][0, 0].item() == pytest.approx(2 * far)


def test_only_the_nearest_count() -> None:
    assert ata_weights(0, [0.0, 3.0, 4.0], [10, 20, 30], 1) == pytest.approx([1 / 3, 2 / 3, 0])
    assert ata_weights(2, [4.0, 5.0, 0.0], [10, 20, 30], 1) == pytest.approx([1 / 4, 0, 3 / 4])


def test_identical_clients_share_alike_and_equally_far_ones_rank_in_order() -> None:
    clients = [client(1, 1)] * 3
    for mean in adaptive_means(clients, [5, 5, 5], 2, 1.0):
        assert torch.equal(mean["x.lora_A.weight"], clients[0]["x.lora_A.weight"])
    assert ata_weights(0, [0.0, 0.0, 0.0], [5, 5, 5], 2) == pytest.approx([1 / 3] * 3)
    assert [w > 0 for w in ata_weights(1, [2.0, 0.0, 2.0, 2.0], [1, 1, 1, 1], 2)] == [True, True, True, False]


def test_more_neighbours_than_there_are_means_all() -> None:
    row = [0.0, 1.0, 2.0]
    assert ata_weights(0, row, [1, 2, 3], 9) == ata_weights(0, row, [1, 2, 3], 2)
    assert ata_weights(0, [0.0], [7], 3) == [1.0]


def test_near_neighbours_do_not_cancel() -> None:
    """Far from the origin a float32 Gram loses differences of 1e-3; the distances keep their order."""
    far = 1e4
    clients = [client(far, far), client(far + 0.004, far), client(far + 0.002, far)]
    row = distances(clients, 1.0)[0].tolist()
    assert row[2] < row[1]
