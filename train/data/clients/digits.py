"""Clients of real handwriting: scikit-learn's digits divided among them, no digit given out twice."""

import numpy as np
from numpy.typing import NDArray

from train.data.clients.partition import client_ids, dirichlet_shares, pathological, split_by_shares
from train.data.config import DataConfig
from train.data.examples import ClientData, Example
from train.data.world.handwriting import load_handwriting
from train.data.world.questions import WORDINGS
from train.data.world.vocabulary import DIGITS, HANDWRITING

Rows = NDArray[np.int64]


def build_digits(config: DataConfig, seed: int) -> list[ClientData]:
    """The clients of `name: digits`, sorted by id; each reads or classifies the digits of its share."""
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
        divided = divide(rng.permutation(parts[0][k]), config)
        tested = rng.permutation(parts[1][k])[: config.test_per_client]
        shown = names[k] if config.classify else ()
        train, val, test = (handwritten(rows, config.tasks[0], shown) for rows in (*divided, tested))
        clients.append(ClientData(name, train, val, test, shown, note=f"{HANDWRITING}: {', '.join(names[k])}"))
    return clients


def hand_out(clients: int, seed: int) -> list[tuple[Rows, Rows]]:
    """For each client, its digits of the training and of the test share: disjoint, equally many, in random order."""
    is_train = load_handwriting().is_train
    if clients > np.sum(~is_train):
        raise ValueError(
            f"clients: found {clients} that read handwriting, of which only {np.sum(~is_train)} are tested"
        )
    rng = np.random.default_rng((seed, 5))
    parts = [np.array_split(rng.permutation(np.flatnonzero(pool)), clients) for pool in (is_train, ~is_train)]
    return list(zip(*parts, strict=True))


def divide(rows: Rows, config: DataConfig) -> tuple[Rows, Rows]:
    """A client's training pool cut in two: training examples (where asked, `few_shot` a class), validation ones."""
    if config.few_shot is None:
        size = min(config.train_per_client, max(1, len(rows) - config.val_per_client))
        return rows[:size], rows[size : size + config.val_per_client]
    labels = load_handwriting().labels
    rank = np.array([np.sum(labels[rows[:i]] == labels[row]) for i, row in enumerate(rows)])
    return rows[rank < config.few_shot], rows[rank >= config.few_shot][: config.val_per_client]


def handwritten(rows: Rows, task: str = "digit", names: tuple[str, ...] = ()) -> tuple[Example, ...]:
    """These digits as examples of the task; names: the client's classes where it classifies."""
    data = load_handwriting()
    return tuple(
        Example(
            data.images[i],
            "" if names else WORDINGS["digit"][0],
            DIGITS[data.labels[i]],
            task,
            names.index(DIGITS[data.labels[i]]) if names else -1,
            f"digits-{i}",
            HANDWRITING,
        )
        for i in rows
    )
