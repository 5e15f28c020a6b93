"""Who gets what: pure functions from a generator to each client's classes, styles or examples."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


def pathological(classes: int, clients: int, per_client: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Disjoint classes: `per_client` class indices for each client, none twice."""
    if clients * per_client > classes:
        raise ValueError(
            f"classes_per_client: {clients} clients × {per_client} classes need {clients * per_client} disjoint ones,"
            f" there are {classes}"
        )
    order = rng.permutation(classes)[: clients * per_client]
    return [tuple(sorted(int(c) for c in part)) for part in order.reshape(clients, per_client)]


def dirichlet_shares(classes: int, clients: int, alpha: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """(clients, classes) share of each class that each client gets, Dirichlet(α); columns sum to 1.

    Small α: few clients hold most of a class. A draw that leaves a client under a fifth of its fair share is repeated.
    """
    for _ in range(10_000):
        shares = rng.dirichlet(np.full(clients, alpha), size=classes).T
        if shares.sum(1).min() >= 0.2 * classes / clients:
            return shares
    raise ValueError(
        f"alpha: found {alpha}, for {clients} clients and {classes} classes some client stays nearly empty; raise it"
    )


def split_by_shares(
    labels: NDArray[np.int64], shares: NDArray[np.float64], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Indices of each client's examples, disjoint: class c is cut at the cumulative shares[:, c].

    Every example is given out, but for classes that nobody has a share in.
    """
    parts: list[list[NDArray[np.int64]]] = [[] for _ in shares]
    for c in np.flatnonzero(shares.sum(0)):
        members = rng.permutation(np.flatnonzero(labels == c))
        cuts = np.rint(np.cumsum(shares[:-1, c]) * len(members)).astype(int)
        for part, piece in zip(parts, np.split(members, cuts), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def take_turns(values: Sequence[T], clients: int) -> list[T]:
    """One value a client, in turn: by style, by task, or by task × style."""
    return [values[i % len(values)] for i in range(clients)]
