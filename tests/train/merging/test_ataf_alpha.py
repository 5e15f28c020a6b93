"""α by agreement: the divergence is Jensen and Shannon's, and the candidate that was planted is found."""

import math

import pytest
import torch
from scipy.spatial.distance import jensenshannon

from train.merging.ataf_alpha import CANDIDATES, choose_alpha, divergence

pytestmark = pytest.mark.numeric


def test_divergence_is_jensen_shannons() -> None:
    random = torch.Generator().manual_seed(0)
    p, q = (torch.randn(6, 9, generator=random, dtype=torch.float64) for _ in range(2))
    wanted = jensenshannon(p.softmax(-1).numpy(), q.softmax(-1).numpy(), axis=1) ** 2
    torch.testing.assert_close(divergence(p, q), torch.from_numpy(wanted))
    torch.testing.assert_close(divergence(p, q), divergence(q, p))
    assert divergence(p, p).abs().max() < 1e-15


def test_distributions_without_common_support_are_ln_2_apart() -> None:
    never = -math.inf
    apart = divergence(torch.tensor([[0.0, never], [0.0, 0.0]]), torch.tensor([[never, 0.0], [0.0, 0.0]]))
    assert apart.tolist() == pytest.approx([math.log(2), 0])


@pytest.mark.parametrize("planted", CANDIDATES)
def test_the_planted_candidate_is_chosen(planted: float) -> None:
    """Both models predict alike; the merged one predicts as they do at the planted α alone."""
    logits = torch.randn(32, 5, generator=torch.Generator().manual_seed(1))
    direction = torch.randn(32, 5, generator=torch.Generator().manual_seed(2))
    alpha, scores = choose_alpha(logits, logits, lambda a: logits + (a - planted) * direction)
    assert alpha == planted
    assert scores[planted] == pytest.approx(0)
    assert list(scores) == list(CANDIDATES)


def test_between_two_models_the_middle_is_closest_and_the_first_of_equals_is_taken() -> None:
    a, b = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    assert choose_alpha(a, b, lambda alpha: (1 - alpha) * a + alpha * b)[0] == 0.5
    assert choose_alpha(a, b, lambda alpha: a)[0] == 0.1
