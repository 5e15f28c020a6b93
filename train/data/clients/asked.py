"""Clients that are asked about scenes or handwriting, and what is held out of the whole federation."""

from collections.abc import Iterator
from typing import NamedTuple

from train.data.clients.digits import Rows, divide, hand_out, handwritten
from train.data.clients.draw import questions
from train.data.clients.partition import client_ids, take_turns
from train.data.config import DataConfig
from train.data.examples import SPLITS, ClientData, Example
from train.data.fields import Task, TaskStyle
from train.data.world.vocabulary import HANDWRITING


class Lot(NamedTuple):
    """What one client is about."""

    style: TaskStyle
    tasks: tuple[Task, ...]


def build_asked(config: DataConfig, seed: int) -> list[ClientData]:
    """The clients of `name: scenes` that answer questions, sorted by id."""
    lots = _lots(config)
    readers = sum(_reads(lot, config) for lot in lots)
    shares = iter(hand_out(readers, seed) if readers else ())
    clients = []
    for k, (name, lot) in enumerate(zip(client_ids(config.clients), lots, strict=True)):
        share = next(shares) if _reads(lot, config) else None
        if share is not None and lot.style == HANDWRITING:
            train, val, test = _read(config, share)
        else:
            sizes = (config.train_per_client, config.val_per_client, config.test_per_client)
            train, val, test = (
                questions(size, lot.style, lot.tasks, (seed, k, s), f"{name}-{split}")
                for s, (split, size) in enumerate(zip(SPLITS, sizes, strict=True))
            )
        unseen = dict(_unseen(config, lot, (seed, k), name, share))
        clients.append(ClientData(name, train, val, test, (), f"{lot.style}: {', '.join(lot.tasks)}", unseen))
    return clients


def _lots(config: DataConfig) -> list[Lot]:
    if config.partition == "style":
        return [Lot(style, config.tasks) for style in take_turns(config.styles, config.clients)]
    if config.partition == "task":
        styles = take_turns(config.styles, config.clients)
        return [
            Lot(styles[i // len(config.tasks) % len(config.styles)], (task,))
            for i, task in enumerate(take_turns(config.tasks, config.clients))
        ]
    every = [Lot(style, (task,)) for task, styles in config.taught.items() for style in styles]
    return take_turns(every, config.clients)


def _reads(lot: Lot, config: DataConfig) -> bool:
    """Whether this client needs a share of the handwriting."""
    return HANDWRITING in (lot.style, config.unseen_styles.get(lot.tasks[0]))


def _read(config: DataConfig, share: tuple[Rows, Rows]) -> tuple[tuple[Example, ...], ...]:
    """Training, validation and test examples of one share of the handwriting."""
    trained, tested = share
    train, val = divide(trained, config)
    return handwritten(train), handwritten(val), handwritten(tested[: config.test_per_client])


def _unseen(
    config: DataConfig, lot: Lot, key: tuple[int, int], name: str, share: tuple[Rows, Rows] | None
) -> Iterator[tuple[str, tuple[Example, ...]]]:
    """By kind of UNSEEN, where the configuration asks for it."""
    size, style = config.unseen_per_client, config.unseen_styles.get(lot.tasks[0])
    if style == HANDWRITING and share is not None:
        yield "style", handwritten(share[1][:size])
    elif style is not None:
        yield "style", questions(size, style, lot.tasks, (*key, len(SPLITS)), f"{name}-style")
    if config.unseen_tasks and lot.style != HANDWRITING:  # of handwriting nothing but its digit can be asked
        yield "task", questions(size, lot.style, config.unseen_tasks, (*key, len(SPLITS) + 1), f"{name}-task")
