"""Answers follow from the scene."""

from random import Random

import pytest

from train.data.world.questions import SIDES, TASKS, Thing, ask, can_ask, caption
from train.data.world.vocabulary import COLOURS, GLYPHS

RED, ORANGE, BLUE = (COLOURS.index(name) for name in ("red", "orange", "blue"))
STAR, RING, SEVEN = (GLYPHS.index(name) for name in ("star", "ring", "seven"))
LEFT = Thing(STAR, RED, 10.0, 12.0, (1, 3, 19, 21))
MIDDLE = Thing(STAR, ORANGE, 30.0, 50.0, (22, 42, 38, 58))
RIGHT = Thing(SEVEN, BLUE, 52.0, 13.0, (45, 4, 58, 22))
SCENE = [LEFT, MIDDLE, RIGHT]


def asked(task: str, scene: list[Thing], times: int = 300) -> dict[str, str]:
    return {question: answer for i in range(times) for _, question, answer in [ask(task, scene, Random(i))]}


def test_captions_read_from_left_to_right() -> None:
    assert caption(SCENE) == "a red star, an orange star and a blue seven"
    assert caption([LEFT, RIGHT]) == "a red star and a blue seven"
    assert caption([MIDDLE]) == "an orange star"


def test_vqa() -> None:
    answers = asked("vqa", SCENE)
    assert answers["What shape is the red object?"] == "star"
    assert answers["What colour is the seven?"] == "blue"
    assert answers["Is there a red star in the image?"] == "yes"
    assert "What colour is the star?" not in answers  # there are two
    absent = [q for q, a in answers.items() if a == "no"]
    assert absent
    assert not any(thing.name in question for question in absent for thing in SCENE)


def test_count() -> None:
    answers = asked("count", SCENE)
    assert answers["How many objects are there?"] == "three"
    assert answers["How many star objects are there?"] == "two"
    assert answers["How many red objects are there?"] == "one"
    assert "zero" in answers.values()


def test_position_ground_region_digit() -> None:
    assert asked("position", SCENE)["Where is the orange star?"] == "bottom"
    assert asked("ground", SCENE)["Give the box of the red star."] == "box 1 3 19 21"
    assert asked("region", SCENE)["What is in the box 22 42 38 58?"] == "an orange star"
    assert asked("digit", SCENE) == {"What digit is in the image?": "seven"}


def test_relations() -> None:
    answers = asked("relation", SCENE)
    assert answers["Is the red star left of the orange star?"] == "yes"
    assert answers["Is the red star above the orange star?"] == "yes"
    assert answers["Is the orange star above the blue seven?"] == "no"
    assert not any("red star above the blue seven" in q for q in answers)  # level with each other
    assert all(any(side in q for side in SIDES) for q in answers)


def test_what_cannot_be_asked() -> None:
    assert not can_ask("relation", [LEFT])
    assert not can_ask("digit", [LEFT, MIDDLE])
    assert all(can_ask(task, SCENE) for task in TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_wordings_vary_in_pretraining_only(task: str) -> None:
    plain = {ask(task, [LEFT, RIGHT], Random(i))[1] for i in range(200)}
    varied = {ask(task, [LEFT, RIGHT], Random(i), reword=True)[1] for i in range(400)}
    assert len(varied) >= len(plain)
