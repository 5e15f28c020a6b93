"""Questions and answers about a scene, for every task of the embedded world.

A box is written `box x0 y0 x1 y1`: first and last column and row of the object, inclusive, 0–63 from the top left.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Final

from torch import Tensor

from train.data.world.scenes import Scenes
from train.data.world.vocabulary import CELLS, COLOURS, DIGITS, GLYPHS, IMAGE_SIZE, SHAPES, object_name

CLEAR: Final = 8.0
"""Least distance at which one object counts as left of or above another, pixels."""
NUMBERS: Final = DIGITS[:4]
"""Words for the counts 0–3."""


@dataclass(frozen=True)
class Thing:
    """One object of a scene, as questions see it."""

    glyph: int
    colour: int
    x: float
    y: float
    box: tuple[int, int, int, int]

    @property
    def name(self) -> str:
        return object_name(self.glyph, self.colour)

    @property
    def cell(self) -> str:
        third = IMAGE_SIZE / 3
        return CELLS[3 * int(self.y // third) + int(self.x // third)]


Turn = tuple[str, str]
"""A question and its answer."""

WORDINGS: Final[dict[str, tuple[str, ...]]] = {
    "caption": ("Describe the image.", "What is in the image?", "Write a caption for the picture."),
    "shape": ("What shape is the {colour} object?", "Which shape is {colour}?"),
    "colour": ("What colour is the {glyph}?", "What color is the {glyph}?", "Which colour does the {glyph} have?"),
    "exists": ("Is there a {name} in the image?", "Can you see a {name}?"),
    "count": ("How many objects are there?", "Count the objects."),
    "count_glyph": ("How many {glyph} objects are there?", "Count the {glyph} objects."),
    "count_colour": ("How many {colour} objects are there?", "Count the {colour} objects."),
    "position": ("Where is the {name}?", "In which part of the image is the {name}?"),
    "relation": ("Is the {name} {side} the {other}?",),
    "ground": ("Give the box of the {name}.", "What is the bounding box of the {name}?"),
    "region": ("What is in the {box}?",),
    "digit": ("What digit is in the image?", "Which digit do you see?", "What number is shown?"),
}
"""How each kind of question is put; the first is the one the federated data use."""

SIDES: Final = ("left of", "right of", "above", "below")

TEXT_TURNS: Final[tuple[Turn, ...]] = (
    ("What shapes do you know?", ", ".join(SHAPES)),
    ("What colours do you know?", ", ".join(COLOURS)),
    ("What colors do you know?", ", ".join(COLOURS)),
    ("What digits do you know?", ", ".join(DIGITS)),
    ("What can you do?", "i describe images, count objects, find them and answer questions"),
    ("Hello!", "hello, show me an image"),
    ("Who are you?", "a small model that answers questions about images"),
    ("What is the opposite of left?", "right"),
    ("What is the opposite of right?", "left"),
    ("What is the opposite of above?", "below"),
    ("What is the opposite of below?", "above"),
    ("What is the opposite of top?", "bottom"),
    ("What is the opposite of bottom?", "top"),
    ("How many sides does a triangle have?", "three"),
    ("How many sides does a square have?", "four"),
    ("How many sides does a diamond have?", "four"),
    ("How many points does a star have?", "five"),
    ("How many sides does a circle have?", "zero"),
    *((f"What comes after {a}?", b) for a, b in pairwise(DIGITS)),
    *((f"What comes before {b}?", a) for a, b in pairwise(DIGITS)),
)
"""Questions that need no image."""


def things(scenes: Scenes, boxes: Tensor) -> list[list[Thing]]:
    """The objects of every scene, from left to right; boxes (B, K, 4) as `render.boxes` returns them."""
    columns = zip(scenes.glyph.tolist(), scenes.colour.tolist(), scenes.centre.tolist(), boxes.tolist(), strict=True)
    return [
        sorted(
            (
                Thing(g, c, xy[0], xy[1], (box[0], box[1], box[2], box[3]))
                for g, c, xy, box in zip(*scene, strict=True)
                if g >= 0
            ),
            key=lambda thing: thing.x,
        )
        for scene in columns
    ]


def _with_article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def caption(scene: list[Thing]) -> str:
    """ "a red star, a blue ring and an orange moon", from left to right."""
    names = [_with_article(thing.name) for thing in scene]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def box_text(box: tuple[int, int, int, int]) -> str:
    """A box as questions and answers write it."""
    return "box " + " ".join(str(edge) for edge in box)


def _ask_caption(scene: list[Thing], random: Random) -> tuple[str, dict[str, str], str]:
    return "caption", {}, caption(scene)


def _ask_vqa(scene: list[Thing], random: Random) -> tuple[str, dict[str, str], str]:
    thing = random.choice(scene)
    kinds = ["exists"]
    if sum(other.colour == thing.colour for other in scene) == 1 and thing.glyph < len(SHAPES):
        kinds.append("shape")
    if sum(other.glyph == thing.glyph for other in scene) == 1:
        kinds.append("colour")
    kind = random.choice(kinds)
    words = {"colour": COLOURS[thing.colour], "glyph": GLYPHS[thing.glyph]}
    if kind != "exists":
        return kind, words, words["glyph" if kind == "shape" else "colour"]
    name = thing.name if random.random() < 0.5 else _absent_name(scene, thing, random)
    return kind, {"name": name}, "yes" if any(name == other.name for other in scene) else "no"


def _absent_name(scene: list[Thing], thing: Thing, random: Random) -> str:
    """An object that is not there, often with one property of one that is."""
    present = {other.name for other in scene}
    pool = range(len(SHAPES)) if thing.glyph < len(SHAPES) else range(len(SHAPES), len(GLYPHS))
    while True:
        name = object_name(
            random.choice([thing.glyph, random.choice(pool)]),
            random.choice([random.choice(scene).colour, random.randrange(len(COLOURS))]),
        )
        if name not in present:
            return name


def _ask_count(scene: list[Thing], random: Random) -> tuple[str, dict[str, str], str]:
    kind = random.choice(("count", "count_glyph", "count_colour"))
    thing = random.choice(scene)
    glyph = thing.glyph if random.random() < 0.7 else random.randrange(len(SHAPES))
    colour = thing.colour if random.random() < 0.7 else random.randrange(len(COLOURS))
    counts = {
        "count": len(scene),
        "count_glyph": sum(other.glyph == glyph for other in scene),
        "count_colour": sum(other.colour == colour for other in scene),
    }
    return kind, {"glyph": GLYPHS[glyph], "colour": COLOURS[colour]}, NUMBERS[counts[kind]]


def _ask_position(scene: list[Thing], random: Random) -> tuple[str, dict[str, str], str]:
    thing = random.choice(scene)
    return "position", {"name": thing.name}, thing.cell


def _ask_relation(scene: list[Thing], random: Random) -> tuple[str, dict[str, str], str]:
    thing, other = random.sample(scene, 2)
    dx, dy = other.x - thing.x, other.y - thing.y
    vertical = abs(dy) >= CLEAR and random.random() < 0.5
    side = random.choice(SIDES[2:] if vertical else SIDES[:2])
    truth = {"left of": dx > 0, "right of": dx < 0, "above": dy > 0, "below": dy < 0}[side]
    return "relation", {"name": thing.name, "side": side, "other": other.name}, "yes" if truth else "no"


def _ask_ground(scene: list[Thing], random: Random) -> tuple[str, dict[str, str], str]:
    thing = random.choice(scene)
    return "ground", {"name": thing.name}, box_text(thing.box)


def _ask_region(scene: list[Thing], random: Random) -> tuple[str, dict[str, str], str]:
    thing = random.choice(scene)
    return "region", {"box": box_text(thing.box)}, _with_article(thing.name)


def _ask_digit(scene: list[Thing], random: Random) -> tuple[str, dict[str, str], str]:
    return "digit", {}, next(GLYPHS[thing.glyph] for thing in scene if thing.glyph >= len(SHAPES))


ASKERS: Final[dict[str, Callable[[list[Thing], Random], tuple[str, dict[str, str], str]]]] = {
    "caption": _ask_caption,
    "vqa": _ask_vqa,
    "count": _ask_count,
    "position": _ask_position,
    "relation": _ask_relation,
    "ground": _ask_ground,
    "region": _ask_region,
    "digit": _ask_digit,
}
TASKS: Final = tuple(ASKERS)


def can_ask(task: str, scene: list[Thing]) -> bool:
    """Whether the scene has what the task asks about: two objects for a relation, one digit for `digit`."""
    if task == "relation":
        return len(scene) > 1
    if task == "digit":
        return sum(thing.glyph >= len(SHAPES) for thing in scene) == 1
    return True


def ask(task: str, scene: list[Thing], random: Random, *, reword: bool = False) -> tuple[str, str, str]:
    """Kind, question and answer of one question of this task; reword: put it in any wording, not just the first."""
    kind, words, answer = ASKERS[task](scene, random)
    wording = random.choice(WORDINGS[kind]) if reword else WORDINGS[kind][0]
    return kind, wording.format(**words), answer
