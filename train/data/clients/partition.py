"""Who gets what: pure functions from a generator to each client's classes, styles or examples."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


def client_ids(clients: int) -> list[str]:
    """client-00, client-01 and so on, sorted."""
    width = max(2, len(str(clients - 1)))
    return [f"client-{i:0{width}d}" for i in range(clients)]


def pathological(classes: int, clients: int, per_client: int | None, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Disjoint classes: `per_client` class indices for each client, none twice; with None all, as evenly as can be."""
    if per_client is None:
        if clients > classes:
            raise ValueError(f"clients: found {clients}, with disjoint classes at most {classes} can have one")
        return [tuple(sorted(int(c) for c in part)) for part in np.array_split(rng.permutation(classes), clients)]
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


def domain_shares(
    domains: int, classes: int, clients: int, alpha: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(clients, domains × classes) share of each class of each domain: one domain a client, `clients ÷ domains` clients
    a domain, which divide its classes by Dirichlet(α)."""
    each = clients // domains
    shares = np.zeros((clients, domains, classes))
    for d in range(domains):
        shares[d * each : (d + 1) * each, d] = dirichlet_shares(classes, each, alpha, rng)
    return shares.reshape(clients, domains * classes)


class Pachinko(NamedTuple):
    """What each client likes to draw."""

    theta: NDArray[np.float64]
    """(clients, super-classes), rows sum to 1."""
    phi: NDArray[np.float64]
    """(clients, classes), sums to 1 over the classes of each super-class."""


def pachinko_weights(
    coarse: NDArray[np.int64], clients: int, alpha: float, beta: float, rng: np.random.Generator
) -> Pachinko:
    """A hierarchical Dirichlet over the super-classes `coarse` (classes,): θ ~ Dirichlet(α), φ ~ Dirichlet(β) within
    each. Li & McCallum 2006, as TensorFlow Federated divides CIFAR-100 (Reddi et al. 2021: α = 0.1, β = 10)."""
    theta = rng.dirichlet(np.full(coarse.max() + 1, alpha), size=clients)
    phi = np.zeros((clients, len(coarse)))
    for s in np.unique(coarse):
        members = np.flatnonzero(coarse == s)
        phi[:, members] = rng.dirichlet(np.full(len(members), beta), size=clients)
    return Pachinko(theta, phi)


def draw_pachinko(
    labels: NDArray[np.int64], coarse: NDArray[np.int64], weights: Pachinko, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Indices of each client's examples, disjoint and equally many: a super-class by θ, then a class in it by φ, then
    one of its examples that are left; what is used up is left out, and the rest renormalised."""
    waiting = [rng.permutation(np.flatnonzero(labels == c)) for c in range(len(coarse))]
    left = np.array([len(members) for members in waiting])
    parts = []
    for theta, phi in zip(*weights, strict=True):
        taken = []
        for _ in range(len(labels) // len(weights.theta)):
            s = _pick(theta, np.bincount(coarse, weights=left, minlength=len(theta)) > 0, rng)
            c = _pick(phi, (left > 0) & (coarse == s), rng)
            left[c] -= 1
            taken.append(waiting[c][left[c]])
        parts.append(np.sort(np.array(taken, dtype=np.int64)))
    return parts


def _pick(weights: NDArray[np.float64], allowed: NDArray[np.bool_], rng: np.random.Generator) -> int:
    """An allowed index by weight; any of them where their weights are too small to tell from 0."""
    shares = np.where(allowed, weights, 0.0)
    if shares.sum() == 0:
        shares = allowed.astype(float)
    return int(rng.choice(len(shares), p=shares / shares.sum()))


def take_turns(values: Sequence[T], clients: int) -> list[T]:
    """One value a client, in turn: by style, by task, or by task × style."""
    return [values[i % len(values)] for i in range(clients)]
