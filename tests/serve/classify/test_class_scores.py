"""What is said of a picture: ranked, and never of scores that are not numbers."""

import pytest
import torch

from adapters_store.personal.heads import TextHead
from serve.classify.class_scores import class_scores
from serve.errors import GatewayError

HEAD = TextHead(torch.tensor(10.0), torch.eye(3))


def test_the_most_probable_class_comes_first() -> None:
    found = class_scores(HEAD, ["a", "b", "c"], torch.tensor([0.1, 0.9, 0.4]), torch.device("cpu"))
    assert [name for name, _ in found.classes] == ["b", "c", "a"]
    assert sum(probability for _, probability in found.classes) == pytest.approx(1)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_scores_that_are_not_finite_are_a_5xx(number: float) -> None:
    with pytest.raises(GatewayError, match="not finite") as refused:
        class_scores(HEAD, ["a", "b", "c"], torch.tensor([0.1, number, 0.4]), torch.device("cpu"))
    assert refused.value.status == 500
