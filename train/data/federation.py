"""Federations: every client's training, validation and test examples, from a configuration and a seed."""

import zlib

import numpy as np
import torch
from numpy.typing import NDArray

from adapters_store.paths import resolve
from train.data.clients.asked import build_asked
from train.data.clients.digits import build_digits
from train.data.clients.draw import Key, generators, paint
from train.data.clients.folder import build_folder
from train.data.clients.image_sets import build_image_set
from train.data.clients.instructions import build_instructions
from train.data.clients.partition import client_ids, dirichlet_shares, pathological, take_turns
from train.data.config import DataConfig
from train.data.examples import SPLITS, ClientData, Example
from train.data.world.scenes import single_objects
from train.data.world.vocabulary import COLOURS, SHAPES, object_name


def build(config: DataConfig, seed: int) -> list[ClientData]:
    """The clients of a federation, sorted by id; equal arguments give equal data, byte for byte."""
    if config.path is not None:
        root = resolve(config.path)
        if config.name == "folder":
            return build_folder(root, None if config.shared is None else resolve(config.shared))
        return build_image_set(config, root, seed)
    if config.sources:
        return build_instructions(config, seed)
    if config.name == "digits":
        return build_digits(config, seed)
    return _build_classes(config, seed) if config.classify else build_asked(config, seed)


def _sizes(config: DataConfig, classes: int) -> tuple[int, int, int]:
    train = config.train_per_client if config.few_shot is None else config.few_shot * classes
    return train, config.val_per_client, config.test_per_client


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
    clients: list[ClientData] = []
    unseen: dict[bytes, dict[str, tuple[Example, ...]]] = {}  # by classes: drawn once for all who have them
    for k, name in enumerate(client_ids(config.clients)):
        share = shares[k].copy()
        if tinted:
            share[np.arange(len(share)) % len(COLOURS) != colour_of[k]] = 0
        classes = np.flatnonzero(share)
        if config.partition != "dirichlet":
            size = min(config.classes_per_client or len(classes), len(classes))
            classes = np.sort(rng.choice(classes, size, replace=False))
        train, val, test = (
            _objects(
                size,
                styles[k],
                classes,
                None if config.few_shot and split == "train" else share[classes],
                (seed, k, s),
                f"{name}-{split}",
            )
            for s, (split, size) in enumerate(zip(SPLITS, _sizes(config, len(classes)), strict=True))
        )
        names = tuple(object_name(*divmod(int(c), len(COLOURS))) for c in classes)
        note = f"{styles[k]}: {len(names)} classes"
        if classes.tobytes() not in unseen:
            unseen[classes.tobytes()] = _unseen(config, classes, seed)
        clients.append(ClientData(name, train, val, test, names, note, unseen[classes.tobytes()]))
    return clients


def _unseen(config: DataConfig, classes: NDArray[np.int64], seed: int) -> dict[str, tuple[Example, ...]]:
    """Equally many of each of these classes, in the style that no client has."""
    style = config.unseen_styles.get("classify")
    if style is None:
        return {}
    drawn = zlib.crc32(classes.astype("<i8").tobytes())
    key, prefix = (seed, drawn, len(SPLITS)), f"unseen-{drawn:08x}"
    return {"style": _objects(config.unseen_per_client, style, classes, None, key, prefix)}


def _objects(
    size: int,
    style: str,
    classes: NDArray[np.int64],
    share: NDArray[np.float64] | None,
    key: Key,
    prefix: str,
) -> tuple[Example, ...]:
    """`size` single objects, their classes drawn by the client's shares, or, where None, equally many of each."""
    generator, _ = generators(*key)
    rng = np.random.default_rng((*key, 2))
    labels = (
        rng.permutation(np.arange(size) % len(classes))
        if share is None
        else rng.choice(len(classes), size, p=share / share.sum())
    )
    images, _ = paint(single_objects(torch.from_numpy(classes[labels]), generator), style, generator)
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
