"""Federations: every client's training, validation and test examples, from a configuration and a seed."""

from collections.abc import Sequence
from random import Random
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from adapters_store.paths import resolve
from train.data.config import DataConfig
from train.data.examples import SPLITS, ClientData, Example
from train.data.folder import build_folder
from train.data.handwriting import load_handwriting
from train.data.image_sets import build_image_set
from train.data.partition import client_ids, dirichlet_shares, pathological, split_by_shares, take_turns
from train.data.questions import WORDINGS, ask, things
from train.data.render import boxes, render, to_bytes
from train.data.scenes import Scenes, pair_weights, sample_scenes, single_objects
from train.data.vocabulary import COLOURS, DIGITS, SHAPES, STYLES, object_name

COUNTS: Final = {"relation": (0.0, 1.0, 1.0), "digit": (1.0, 0.0, 0.0)}
"""Weights of one, two and three objects in scenes of a task; equal where not named."""


def build(config: DataConfig, seed: int) -> list[ClientData]:
    """The clients of a federation, sorted by id; equal arguments give equal data, byte for byte."""
    if config.path is not None:
        root = resolve(config.path)
        return build_folder(root) if config.name == "folder" else build_image_set(config, root, seed)
    if config.name == "digits":
        return _build_digits(config, seed)
    return _build_classes(config, seed) if config.classify else _build_questions(config, seed)


def _sizes(config: DataConfig, classes: int) -> tuple[int, int, int]:
    train = config.train_per_client if config.few_shot is None else config.few_shot * classes
    return train, config.val_per_client, config.test_per_client


def _generator(*key: int) -> tuple[torch.Generator, Random]:
    """Random numbers of one (seed, client, split), for pictures and for questions."""
    state = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state % 2**63), Random(state)


def _paint(scenes: Scenes, style: str, generator: torch.Generator) -> tuple[NDArray[np.uint8], torch.Tensor]:
    """Pictures (B, 64, 64, 3) of the scenes in one style, and the objects' boxes (B, 3, 4)."""
    images, distance = render(scenes, torch.full((len(scenes),), STYLES.index(style)), generator)
    return to_bytes(images).contiguous().numpy(), boxes(distance)


def _build_questions(config: DataConfig, seed: int) -> list[ClientData]:
    pairs: list[tuple[str, tuple[str, ...]]]
    if config.partition == "style":
        pairs = [(style, config.tasks) for style in take_turns(config.styles, config.clients)]
    elif config.partition == "task":
        style_of = take_turns(config.styles, config.clients)
        pairs = [
            (style_of[i // len(config.tasks) % len(config.styles)], (task,))
            for i, task in enumerate(take_turns(config.tasks, config.clients))
        ]
    else:
        product = [(style, (task,)) for task in config.tasks for style in config.styles]
        pairs = take_turns(product, config.clients)
    clients = []
    for k, (name, (style, tasks)) in enumerate(zip(client_ids(config.clients), pairs, strict=True)):
        train, val, test = (
            _questions(size, style, tasks, (seed, k, s), f"{name}-{split}")
            for s, (split, size) in enumerate(zip(SPLITS, _sizes(config, 0), strict=True))
        )
        clients.append(ClientData(name, train, val, test, class_names=(), note=f"{style}: {', '.join(tasks)}"))
    return clients


def _questions(
    size: int, style: str, tasks: Sequence[str], key: tuple[int, int, int], prefix: str
) -> tuple[Example, ...]:
    """`size` examples of the given tasks in turn."""
    examples: list[Example] = []
    for t, task in enumerate(tasks):
        number = (size - t + len(tasks) - 1) // len(tasks)
        if number <= 0:
            continue
        generator, random = _generator(*key, t)
        glyphs = range(len(SHAPES), len(SHAPES) + len(DIGITS)) if task == "digit" else range(len(SHAPES))
        weights = pair_weights(list(glyphs), list(range(len(COLOURS))))
        scenes = sample_scenes(number, generator, weights, COUNTS.get(task, (1.0, 1.0, 1.0)))
        images, edges = _paint(scenes, style, generator)
        for i, (image, scene) in enumerate(zip(images, things(scenes, edges), strict=True)):
            _, question, answer = ask(task, scene, random)
            examples.append(Example(image, question, answer, task, -1, f"scenes-{prefix}-{task}-{i}", style))
    Random(str(key)).shuffle(examples)
    return tuple(examples)


def _build_classes(config: DataConfig, seed: int) -> list[ClientData]:
    rng = np.random.default_rng((seed, 1))
    styles = take_turns(config.styles, config.clients)
    tinted = config.colour == "one_per_client"
    colour_of = take_turns([int(c) for c in rng.permutation(len(COLOURS))], config.clients)
    shares = np.ones((config.clients, len(SHAPES) * len(COLOURS)))
    if config.partition == "dirichlet":
        shares = dirichlet_shares(shares.shape[1], config.clients, config.alpha, rng)
    elif config.partition == "pathological" and not tinted:
        chosen = pathological(shares.shape[1], config.clients, config.classes_per_client, rng)
        shares = np.stack([np.isin(np.arange(shares.shape[1]), own) for own in chosen]).astype(float)
    clients = []
    for k, name in enumerate(client_ids(config.clients)):
        share = shares[k].copy()
        if tinted:
            share[np.arange(len(share)) % len(COLOURS) != colour_of[k]] = 0
        classes = np.flatnonzero(share)
        if config.partition != "dirichlet":
            size = min(config.classes_per_client or len(classes), len(classes))
            classes = np.sort(rng.choice(classes, size, replace=False))
        train, val, test = (
            _objects(size, styles[k], classes, share[classes], (seed, k, s), f"{name}-{split}", config.few_shot)
            for s, (split, size) in enumerate(zip(SPLITS, _sizes(config, len(classes)), strict=True))
        )
        names = tuple(object_name(*divmod(int(c), len(COLOURS))) for c in classes)
        clients.append(ClientData(name, train, val, test, names, note=f"{styles[k]}: {len(names)} classes"))
    return clients


def _objects(
    size: int,
    style: str,
    classes: NDArray[np.int64],
    share: NDArray[np.float64],
    key: tuple[int, int, int],
    prefix: str,
    few_shot: int | None,
) -> tuple[Example, ...]:
    """`size` single objects, their classes drawn by the client's shares (few-shot training: equally many of each)."""
    generator, _ = _generator(*key)
    rng = np.random.default_rng((*key, 2))
    equal = few_shot is not None and key[2] == 0
    labels = (
        rng.permutation(np.arange(size) % len(classes))
        if equal
        else rng.choice(len(classes), size, p=share / share.sum())
    )
    images, _ = _paint(single_objects(torch.from_numpy(classes[labels]), generator), style, generator)
    return tuple(
        Example(
            image,
            "",
            object_name(*divmod(int(classes[label]), len(COLOURS))),
            "classify",
            int(label),
            f"scenes-{prefix}-{i}",
            style,
        )
        for i, (image, label) in enumerate(zip(images, labels, strict=True))
    )


def _build_digits(config: DataConfig, seed: int) -> list[ClientData]:
    data = load_handwriting()
    rng = np.random.default_rng((seed, 3))
    if config.partition == "pathological":
        own = pathological(len(DIGITS), config.clients, config.classes_per_client, rng)
        shares = np.stack([np.isin(np.arange(len(DIGITS)), classes) for classes in own]).astype(float)
        names = [tuple(DIGITS[c] for c in classes) for classes in own]
    else:
        shares = dirichlet_shares(len(DIGITS), config.clients, config.alpha, rng)
        names = [DIGITS] * config.clients
    pools = [np.flatnonzero(data.is_train), np.flatnonzero(~data.is_train)]
    parts = [[pool[own] for own in split_by_shares(data.labels[pool], shares, rng)] for pool in pools]
    clients = []
    for k, name in enumerate(client_ids(config.clients)):
        divided = _divide(rng.permutation(parts[0][k]), data.labels, config, len(names[k]))
        tested = rng.permutation(parts[1][k])[: config.test_per_client]
        train, val, test = (_handwritten(rows, config, names[k]) for rows in (*divided, tested))
        shown = names[k] if config.classify else ()
        clients.append(ClientData(name, train, val, test, shown, note=f"handwriting: {', '.join(names[k])}"))
    return clients


def _divide(
    rows: NDArray[np.int64], labels: NDArray[np.int64], config: DataConfig, classes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A client's training pool cut in two: training examples (where asked, `few_shot` a class), validation ones."""
    if config.few_shot is None:
        size = min(_sizes(config, classes)[0], max(1, len(rows) - config.val_per_client))
        return rows[:size], rows[size : size + config.val_per_client]
    rank = np.array([np.sum(labels[rows[:i]] == labels[row]) for i, row in enumerate(rows)])
    return rows[rank < config.few_shot], rows[rank >= config.few_shot][: config.val_per_client]


def _handwritten(rows: NDArray[np.int64], config: DataConfig, names: tuple[str, ...]) -> tuple[Example, ...]:
    data = load_handwriting()
    question = "" if config.classify else WORDINGS["digit"][0]
    return tuple(
        Example(
            data.images[i],
            question,
            DIGITS[data.labels[i]],
            config.tasks[0],
            names.index(DIGITS[data.labels[i]]) if config.classify else -1,
            f"digits-{i}",
            "handwriting",
        )
        for i in rows
    )
