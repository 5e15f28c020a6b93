"""Anchors: the few public image–text pairs by which a server judges what clients sent it, without their data.

embedded  rendered in the base's own public styles, from random numbers that no federation draws: no client has one
folder    <path>/star.png with its text in <path>/star.txt, and so on
coco      COCO's captions, laid out as train/data/readers/coco_captions.py says; of an image's captions one is drawn
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Annotated, Final, Literal

import torch
from pydantic import Field

from adapters_store.paths import resolve
from train.data.clients.draw import generators, questions
from train.data.examples import Example, read_image
from train.data.fields import Task
from train.data.readers.coco_captions import read_coco_captions
from train.data.readers.pictures import SUFFIXES
from train.data.sources import Source
from train.data.world.questions import WORDINGS
from train.data.world.render import render, to_bytes
from train.data.world.scenes import single_objects
from train.data.world.vocabulary import COLOURS, PROMPT_TEMPLATE, PUBLIC_STYLES, SHAPES, STYLES, object_name
from train.section import Section

ANCHORS: Final = int.from_bytes(b"anchors")
"""Stands where a federation's random numbers have their seed, so that none are shared with any seed's data."""

Family = Literal["clip", "mllm"]
Pair = tuple[Path, str]
"""An image's file and its text."""


class AnchorOptions(Section):
    """Where the anchors come from, and how many there are."""

    source: Literal["embedded", "folder", "coco"] = Field(
        "embedded", description="rendered; or under path, a folder of image–text pairs or COCO's captions"
    )
    path: str | None = Field(None, description="folder, coco: where they lie, see train/data/anchors.py")
    count: Annotated[int, Field(ge=1, le=1024, description="how many; the first of more are those of fewer")] = 32
    tasks: tuple[Task, ...] = Field(
        ("caption",), min_length=1, description="embedded, family mllm: what is asked about them, in turn"
    )

    def misfits(self) -> Iterator[str]:
        if (self.source == "embedded") != (self.path is None):
            yield f"path: found {self.path!r} with source {self.source!r}; path and 'folder' or 'coco' need each other"
        if "classify" in self.tasks or (self.source != "embedded" and self.tasks != ("caption",)):
            yield (
                f"tasks: found {list(self.tasks)} with source {self.source!r}, allowed are tasks that ask a question"
                " with 'embedded', ['caption'] with the others"
            )


def anchors(options: AnchorOptions, family: Family, seed: int) -> tuple[Example, ...]:
    """``options.count`` anchors; equal arguments give equal ones.

    Family clip: ``.answer`` is the caption; embedded, "a photo of a red star.", no object twice before all 80 were.
    Family mllm: ``.question`` asks, by default for the caption, and ``.answer`` answers.
    ValueError with one sentence where what lies under the path does not fit.
    """
    if options.path is not None:
        return tuple(_read(options, options.path, family, seed))
    endless = _objects(seed) if family == "clip" else _asked(options.tasks, seed)
    return tuple(itertools.islice(endless, options.count))


def _objects(seed: int) -> Iterator[Example]:
    """Single objects: all of them in random order, then all in another order, and so on; the styles in turn."""
    styles = itertools.cycle(PUBLIC_STYLES)
    for block in itertools.count():
        generator, _ = generators(ANCHORS, seed, block)
        pairs = torch.randperm(len(SHAPES) * len(COLOURS), generator=generator)
        shown = list(itertools.islice(styles, len(pairs)))
        index = torch.tensor([STYLES.index(style) for style in shown])
        images = to_bytes(render(single_objects(pairs, generator), index, generator)[0]).contiguous().numpy()
        for i, (image, pair, style) in enumerate(zip(images, pairs.tolist(), shown, strict=True)):
            caption = PROMPT_TEMPLATE.replace("{class}", object_name(*divmod(pair, len(COLOURS))))
            yield Example(image, "", caption, "caption", -1, f"anchors-{seed}-{block}-{i}", style)


def _asked(tasks: tuple[Task, ...], seed: int) -> Iterator[Example]:
    """Questions about scenes, the tasks in turn, each task in every style in turn."""
    for i in itertools.count():
        turn, t = divmod(i, len(tasks))
        style = PUBLIC_STYLES[(turn + t) % len(PUBLIC_STYLES)]
        yield from questions(1, style, tasks[t : t + 1], (ANCHORS, seed, i), f"anchors-{seed}-{i}")


def _read(options: AnchorOptions, path: str, family: Family, seed: int) -> Iterator[Example]:
    """So many of the pairs under the path, drawn by seed."""
    _, random = generators(ANCHORS, seed)
    root = resolve(path)
    if not root.is_dir():
        raise ValueError(f"anchors.path: found {path!r}, which is no folder; it must hold images with their texts")
    try:
        pairs = _folder(root) if options.source == "folder" else _captions(path, random)
        random.shuffle(pairs)
        for image, _ in pairs[: options.count]:
            read_image(image)  # refuse a broken file before anything is trained
    except ValueError as error:  # the readers' sentences name a field of the clients' data
        raise ValueError(f"anchors.path: {str(error).partition(': ')[2]}") from None
    if len(pairs) < options.count:
        raise ValueError(f"anchors.count: found {options.count}, at most {len(pairs)} are in {root}")
    question = WORDINGS["caption"][0] if family == "mllm" else ""
    for i, (image, text) in enumerate(pairs[: options.count]):
        yield Example(image, question, text, "caption", -1, f"anchors-{seed}-{i}", options.source)


def _folder(root: Path) -> list[Pair]:
    pairs = []
    for image in sorted(path for path in root.iterdir() if path.suffix.lower() in SUFFIXES):
        text = image.with_suffix(".txt")
        said = text.read_text(encoding="utf-8", errors="replace").strip() if text.is_file() else ""
        if not said:
            raise ValueError(f"path: found {image} without its text, expected in {text.name} beside it")
        pairs.append((image, said))
    return pairs


def _captions(path: str, random: Random) -> list[Pair]:
    """Each training image of COCO with one of its captions."""
    captions: dict[str, list[str]] = defaultdict(list)
    for turn in read_coco_captions(Source(format="coco_captions", path=path)).turns:
        if turn.split == "train":
            captions[turn.image].append(turn.answer)
    return [(Path(image), random.choice(captions[image])) for image in sorted(captions)]
