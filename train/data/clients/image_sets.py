"""A federation from a public data set: its images divided among clients, each of whom classifies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from train.data.clients.partition import (
    client_ids,
    dirichlet_shares,
    domain_shares,
    draw_pachinko,
    pachinko_weights,
    pathological,
    split_by_shares,
)
from train.data.clients.selection import read_selection
from train.data.config import DataConfig
from train.data.examples import ClientData, Example
from train.data.readers import ImageSet, Picture

DRAWS: Final = 100
"""How often a division is drawn anew that leaves a client without training or test images."""

Rows = NDArray[np.int64]


def build_image_set(config: DataConfig, root: Path, seed: int) -> list[ClientData]:
    """The clients, sorted by id. ValueError with one sentence where the data or the settings do not fit."""
    data = read_selection(config, root, seed)
    unseen = _unseen(data, config, seed)
    rng = np.random.default_rng((seed, 4))
    own = _classes(data, config, rng)
    parts = _divide(data, own, config, rng)
    clients = []
    for name, classes, rows in zip(client_ids(config.clients), own, zip(*parts, strict=True), strict=True):
        pictures = _sized(data, rows, config, rng)
        known = classes if config.candidates == "own" else tuple(range(len(data.class_names)))
        train, val, test = (
            tuple(_example(picture, data, known, config, data.domains[picture.domain]) for picture in part)
            for part in pictures
        )
        names = tuple(data.class_names[c] for c in known)
        styles = ", ".join(sorted({example.style for example in train}))
        clients.append(ClientData(name, train, val, test, names, f"{styles}: {len(classes)} classes", unseen))
    return clients


def _classes(data: ImageSet, config: DataConfig, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """The classes that each client may hold."""
    classes = len(data.class_names)
    if config.partition == "pathological":
        return pathological(classes, config.clients, config.classes_per_client, rng)
    return [tuple(range(classes))] * config.clients


def _divide(
    data: ImageSet, own: list[tuple[int, ...]], config: DataConfig, rng: np.random.Generator
) -> list[list[Rows]]:
    """For training, validation and test images, the rows of each client: alike in all three, disjoint."""
    classes, splits = len(data.class_names), (data.train, data.val, data.test)
    if config.partition == "pachinko":
        if not data.coarse:
            raise ValueError("partition: pachinko needs super-classes, which only CIFAR-100's binary version has")
        coarse = np.array(data.coarse, dtype=np.int64)
        weights = pachinko_weights(coarse, config.clients, config.alpha, config.beta, rng)
        labels = [np.array([picture.label for picture in split], dtype=np.int64) for split in splits]
        return [draw_pachinko(part, coarse, weights, rng) for part in labels]
    kinds = [np.array([p.domain * classes + p.label for p in split], dtype=np.int64) for split in splits]
    for _ in range(DRAWS):
        shares = _shares(data, own, config, rng)
        parts = [split_by_shares(part, shares, rng) for part in kinds]
        if all(len(train) and len(test) for train, test in zip(parts[0], parts[2], strict=True)):
            return parts
    raise ValueError(f"clients: found {config.clients}, so many that some have no training or no test image")


def _shares(
    data: ImageSet, own: list[tuple[int, ...]], config: DataConfig, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(clients, domains × classes) share of each class of each domain that each client gets."""
    domains, classes = len(data.domains), len(data.class_names)
    if config.partition == "domain":
        return domain_shares(domains, classes, config.clients, config.alpha, rng)
    if config.partition == "dirichlet":
        shares = dirichlet_shares(classes, config.clients, config.alpha, rng)
    else:
        shares = np.stack([np.isin(np.arange(classes), held) for held in own]).astype(float)
    return np.tile(shares, domains)


def _sized(
    data: ImageSet, rows: Sequence[Rows], config: DataConfig, rng: np.random.Generator
) -> tuple[list[Picture], list[Picture], list[Picture]]:
    """A client's training, validation and test images, not more than asked for."""
    train, val, test = (
        [split[i] for i in rng.permutation(held)]
        for split, held in zip((data.train, data.val, data.test), rows, strict=True)
    )
    if config.few_shot is None:
        size = len(train) if data.val else max(1, len(train) - config.val_per_client)
        size = min(size, config.train_per_client)
        train, val = train[:size], val if data.val else train[size:]
    return train, val[: config.val_per_client], test[: config.test_per_client]


def _unseen(data: ImageSet, config: DataConfig, seed: int) -> dict[str, tuple[Example, ...]]:
    """Images of the domain that nobody has, for every client the same."""
    if config.unseen_domain is None:
        return {}
    rows = np.random.default_rng((seed, 6)).permutation(len(data.unseen))[: config.unseen_per_client]
    every = tuple(range(len(data.class_names)))
    return {"style": tuple(_example(data.unseen[i], data, every, config, config.unseen_domain) for i in rows)}


def _example(picture: Picture, data: ImageSet, known: tuple[int, ...], config: DataConfig, style: str) -> Example:
    source = picture.source
    if isinstance(source, Path) and not source.is_file():
        raise ValueError(f"data.path: {source} is missing, though the split of {config.name} names it")
    name, uid = data.class_names[picture.label], f"{config.name}/{picture.name}"
    return Example(source, "", name, "classify", known.index(picture.label), uid, style)
