"""Scores, in both directions."""

import pytest

from train.data.score import overlap, read_box, score


@pytest.mark.parametrize(
    ("answer", "truth"),
    [("star", "star"), ("  A  red\nSTAR ", "a red star"), ("yes.", "yes"), ("top left", "Top left")],
)
def test_equal_up_to_case_and_space(answer: str, truth: str) -> None:
    assert score("vqa", answer, truth) == 1.0


@pytest.mark.parametrize("answer", ["", "a red", "red star", "a red star and a blue ring", "yes"])
def test_anything_else_is_wrong(answer: str) -> None:
    assert score("caption", answer, "a red star") == 0.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("box 10 10 19 19", 1.0),
        ("BOX  10 10 19 19.", 1.0),
        ("box 10 10 19 14", 1.0),  # exactly half
        ("box 10 10 19 13", 0.0),
        ("box 40 40 49 49", 0.0),
        ("box 19 19 10 10", 0.0),  # inside out
        ("10 10 19 19", 0.0),
        ("box 10 10 19", 0.0),
        ("", 0.0),
    ],
)
def test_boxes_need_half_overlap(answer: str, expected: float) -> None:
    assert score("ground", answer, "box 10 10 19 19") == expected


def test_a_truth_without_a_box_is_an_error() -> None:
    with pytest.raises(ValueError, match="truth of a ground question: found 'star'"):
        score("ground", "box 1 2 3 4", "star")


def test_overlap_counts_pixels() -> None:
    assert overlap((0, 0, 9, 9), (5, 0, 14, 9)) == pytest.approx(50 / 150)
    assert read_box("box 1 2 3 4") == (1, 2, 3, 4)
