"""The tasks' own metrics against values worked out by hand."""

import math
import sys

import pytest

from train.data.metrics import metrics


def test_bleu_of_one_wrong_word_by_hand() -> None:
    """7 words, the last wrong: 6/7 words, 5/6 pairs, 4/5 triples, 3/4 fours are right; no brevity penalty."""
    found = metrics("caption", ["A red star and a blue ring"], ["a red star and a blue moon"])
    assert found["bleu"] == pytest.approx((6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** 0.25)
    assert found["rouge_l"] == pytest.approx(6 / 7)


def test_bleu_is_of_the_corpus_and_penalises_brevity() -> None:
    """Two captions of 7 and 3 words against 7 and 7: all n-grams right, exp(1 − 14/10)."""
    truths = ["a red star and a blue ring", "a red star and a blue moon"]
    found = metrics("caption", [truths[0], "a red star"], truths)
    assert found["bleu"] == pytest.approx(math.exp(1 - 14 / 10))
    assert found["rouge_l"] == pytest.approx((1 + 2 * (3 / 7) / (1 + 3 / 7)) / 2)


def test_rouge_l_is_of_the_longest_common_subsequence() -> None:
    """ "a red star" of "a blue star, a red ring": "a … star", "a red" are 2 of 3 and 2 of 6 words."""
    found = metrics("caption", ["a red star"], ["a blue star, a red ring"])
    precision, recall = 2 / 3, 2 / 6
    assert found["rouge_l"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert found["bleu"] == 0.0  # no four words in a row


def test_captions_right_and_wrong() -> None:
    truth = "a red star and a blue ring"
    assert metrics("caption", (truth,), (truth,)) == {"bleu": pytest.approx(1.0), "rouge_l": pytest.approx(1.0)}
    assert metrics("caption", ["", "seven"], [truth, truth]) == {"bleu": 0.0, "rouge_l": 0.0}


def test_boxes_by_hand() -> None:
    """The same, half of it, a third (50 of 150 pixels), none, and no box."""
    truths = ["box 0 0 9 9"] * 5
    answers = ["box 0 0 9 9", "box 0 0 9 4", "box 5 0 14 9", "box 30 30 39 39", "left"]
    found = metrics("ground", answers, truths)
    assert found == {"iou": pytest.approx((1 + 0.5 + 50 / 150) / 5), "accuracy_50": pytest.approx(2 / 5)}


def test_other_tasks_have_none() -> None:
    assert metrics("vqa", ["yes"], ["no"]) == {}


def test_nothing_is_needed_that_would_be_downloaded() -> None:
    metrics("caption", ["a red star"], ["a red star"])
    assert "nltk" not in sys.modules
