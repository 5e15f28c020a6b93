"""L_d, L_b, L_z against their definitions in float64."""

import pytest
import torch

from train.methods.pilot_losses import balance_loss, difference_loss, z_loss

pytestmark = pytest.mark.numeric

RANDOM = torch.Generator().manual_seed(1)


@pytest.mark.parametrize(("tokens", "width"), [(5, 12), (12, 5), (7, 7)])
def test_the_difference_by_grams_is_the_dense_one(tokens: int, width: int) -> None:
    task, client = (torch.randn(3, tokens, width, dtype=torch.float64, generator=RANDOM) for _ in range(2))
    total = 0.0
    for x, y in zip(task, client, strict=True):
        product = (x / x.norm(dim=1, keepdim=True)).T @ (y / y.norm(dim=1, keepdim=True))  # C × C
        total += float((product**2).sum()) / tokens**2
    assert difference_loss(task, client, "per_image").item() == pytest.approx(total / 3, rel=1e-12)

    x, y = (each.reshape(3, -1) / each.reshape(3, -1).norm(dim=1, keepdim=True) for each in (task, client))
    dense = (x.T @ y).square().mean()  # (N·C) × (N·C)
    assert difference_loss(task, client, "reference").item() == pytest.approx(dense.item(), rel=1e-12)


def test_the_difference_lies_between_one_over_n_and_one() -> None:
    """One where every token is alike in both; 1/N where the tokens of one are all orthogonal to each other."""
    alike = torch.ones(1, 3, 6)
    assert difference_loss(alike, alike, "per_image").item() == pytest.approx(1)
    assert difference_loss(torch.eye(6)[None, :3], alike, "per_image").item() == pytest.approx(1 / 3)


def test_the_reference_forms_norms_have_no_gradient() -> None:
    """A longer x_t raises it: with norms that the gradient went through it would not change at all."""
    task, client = (torch.randn(3, 4, 5, dtype=torch.float64, generator=RANDOM) for _ in range(2))
    task.requires_grad_()
    difference_loss(task, client, "reference").backward()
    assert task.grad is not None
    x, y = task.detach().flatten(1), client.flatten(1)
    lengths = x.norm(dim=1, keepdim=True)
    x, y = x / lengths, y / y.norm(dim=1, keepdim=True)
    expected = 2 * (y @ y.T) @ x / lengths / x.shape[1] ** 2  # of ‖XᵀY‖² / (N·C)², with X = x_t / constants
    torch.testing.assert_close(task.grad.flatten(1), expected)


def test_the_balance_is_one_when_even_and_the_number_of_experts_when_not() -> None:
    even = torch.eye(4).repeat(5, 1)[None]
    alone = torch.eye(4)[:1].repeat(20, 1)[None]
    assert balance_loss(even).item() == pytest.approx(1)
    assert balance_loss(alone).item() == pytest.approx(4)


def test_the_balance_is_of_each_images_own_tokens() -> None:
    """Two images that use one expert each are not balanced by using different ones."""
    apart = torch.eye(2)[:, None].expand(2, 6, 2)  # (B, N, T)
    assert balance_loss(apart).item() == pytest.approx(2)
    probabilities = torch.rand(2, 9, 3, dtype=torch.float64, generator=RANDOM).softmax(-1)
    total = 0.0
    for image in probabilities.tolist():
        for e in range(3):
            chosen = sum(row.index(max(row)) == e for row in image) / 9
            total += 9 * sum(row[e] for row in image) / 9 * chosen / 3
    assert balance_loss(probabilities).item() == pytest.approx(total / 2, rel=1e-12)


def test_the_z_loss_is_the_mean_square_of_the_log_of_sums() -> None:
    logits = torch.randn(2, 5, 3, dtype=torch.float64, generator=RANDOM)
    expected = logits.exp().sum(-1).log().pow(2).mean()
    assert z_loss(logits).item() == pytest.approx(expected.item(), rel=1e-12)
