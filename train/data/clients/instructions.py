"""A federation from instruction data in local folders: each source's images divided among clients of its own.

An image is at one client and in one split, also where several sources have it: in one folder, or under the names that
COCO gave it in 2014 and 2017; other copies are not noticed. The data's own test and validation splits are kept; where
one is missing, at most one training image in ``HELD_OUT`` goes there, by seed. A client's examples are drawn from its
images.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from train.data.clients.partition import client_ids
from train.data.config import DataConfig
from train.data.examples import SPLITS, ClientData, Example
from train.data.readers.coco_captions import read_coco_captions
from train.data.readers.instruction import Instruction, Instructions
from train.data.readers.llava_instruct import read_llava_instruct
from train.data.readers.refcoco import read_refcoco
from train.data.readers.vqav2 import read_vqav2
from train.data.sources import Format, Source

READERS: Final[dict[Format, Callable[[Source], Instructions]]] = {
    "llava_instruct": read_llava_instruct,
    "coco_captions": read_coco_captions,
    "vqav2": read_vqav2,
    "refcoco": read_refcoco,
}
HELD_OUT: Final = 5
COCO_NAME: Final = re.compile(r"/(?:COCO_(?:train|val|test)201\d_)?(\d{12})\.jpg$")

Images = dict[str, list[str]]
"""A client's images by split, in an order drawn at random."""


class Held(NamedTuple):
    """What a source holds of one image: its split, and the rows of its turns."""

    split: str
    rows: list[int]


def build_instructions(config: DataConfig, seed: int) -> list[ClientData]:
    """The clients, sorted by id, those of the first source first. ValueError with one sentence if data do not fit."""
    data = [READERS[source.format](source) for source in config.sources]
    held = [by_image(read.turns) for read in data]
    rng = np.random.default_rng((seed, 5))
    owned = deal(held, [source.clients for source in config.sources], rng)
    origin = [s for s, source in enumerate(config.sources) for _ in range(source.clients)]
    clients = []
    for name, s, images in zip(client_ids(len(owned)), origin, owned, strict=True):
        source, splits = config.sources[s], cut(images, {image.split for image in held[s].values()}, config)
        train, val, test = (
            tuple(_example(s, source, row, data[s].turns[row]) for row in _draw(splits[split], held[s], limit, rng))
            for split, limit in zip(SPLITS, _limits(config), strict=True)
        )
        if not train or not test:
            raise ValueError(
                f"data.sources.{s}.clients: found {source.clients} for {source.path}, so many that some have no"
                " training or no test image"
            )
        note = f"{source.asks}: {sum(map(len, images.values()))} images of {source.path}"
        clients.append(ClientData(name, train, val, test, (), "; ".join(filter(None, (note, data[s].note)))))
    return clients


def _limits(config: DataConfig) -> tuple[int, int, int]:
    return config.train_per_client, config.val_per_client, config.test_per_client


def by_image(turns: Sequence[Instruction]) -> dict[str, Held]:
    """The turns of each image. One in several splits is in the last of them alone, test before all, and has that
    split's turns only (RefCOCO's google split divides objects, not images)."""
    images: dict[str, Held] = {}
    for row, turn in enumerate(turns):
        held = images.setdefault(turn.image, Held(turn.split, []))
        if turn.split == held.split:
            held.rows.append(row)
        elif SPLITS.index(turn.split) > SPLITS.index(held.split):
            images[turn.image] = Held(turn.split, [row])
    return images


def deal(held: Sequence[dict[str, Held]], clients: Sequence[int], rng: np.random.Generator) -> list[Images]:
    """Every image to one client: of those whose source has it, the one with the fewest in the split it would get."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    for source, images in enumerate(held):
        for image, (split, _) in images.items():
            found.setdefault(_known_as(image), []).append((source, split, image))
    first = np.cumsum([0, *clients])
    owned: list[Images] = [{split: [] for split in SPLITS} for _ in range(first[-1])]
    names = sorted(found)
    for i in rng.permutation(len(names)):
        takers = (
            (owned[client][split], image)
            for source, split, image in found[names[i]]
            for client in range(first[source], first[source + 1])
        )
        fewest, image = min(takers, key=lambda taker: len(taker[0]))
        fewest.append(image)
    return owned


def _known_as(image: str) -> str:
    """COCO's number of the image, the same in all its years; of others, the file."""
    number = COCO_NAME.search(image)
    return number[1] if number else image


def cut(images: Images, own_splits: set[str], config: DataConfig) -> Images:
    """A client's images with test and validation cut off the training ones, where the source has no such split."""
    kept = dict(images)
    for split, limit, least in (("test", config.test_per_client, 1), ("val", config.val_per_client, 0)):
        if split not in own_splits:
            size = min(limit, max(least, len(kept["train"]) // HELD_OUT))
            kept[split], kept["train"] = kept["train"][:size], kept["train"][size:]
    return kept


def _draw(images: Sequence[str], held: dict[str, Held], limit: int, rng: np.random.Generator) -> list[int]:
    """Rows of at most ``limit`` turns about these images."""
    rows = [row for image in images for row in held[image].rows]
    return [rows[i] for i in rng.permutation(len(rows))[:limit]]


def _example(number: int, source: Source, row: int, turn: Instruction) -> Example:
    file = Path(turn.image)
    if not file.is_file():
        raise ValueError(f"data.sources: {file} is missing, though the annotations of {source.path} name it")
    return Example(file, turn.question, turn.answer, source.asks, -1, f"{number}-{source.format}-{row}", source.format)
