"""Whether a run can train and measure the clients that its data turned out to have, before anything is loaded."""

from collections.abc import Collection, Sequence

from train.data import ClientData
from train.methods import METHODS
from train.methods.contract import AveragingOptions
from train.run.config import RunConfig


def check_clients(config: RunConfig, family: str, clients: Sequence[ClientData]) -> None:
    """ValueError, in one sentence, where a method for images in classes finds questions, an aggregator too few clients,
    or a split nothing in it."""
    if family == "clip":
        asked = [client.id for client in clients if not client.class_names]
        if asked:
            answering = [name for name, method in METHODS.items() if getattr(method, "family", None) == "mllm"]
            raise ValueError(
                f"method.name: found {config.method.name!r}, which sorts images into classes, but {_some(asked)}"
                f" {'has' if len(asked) == 1 else 'have'} questions; for those allowed are {', '.join(answering)}, and"
                " one-shot methods with method.family mllm"
            )
    if isinstance(config.method, AveragingOptions):
        drawn = min(config.federation.clients_per_round or len(clients), len(clients))
        if drawn < config.method.aggregator.least:
            raise ValueError(
                f"method.aggregator.rule: found {config.method.aggregator.rule!r}, which needs"
                f" {config.method.aggregator.least} clients in a round; here are {drawn}"
            )
    split = config.evaluate.split
    bare = [client.id for client in clients if not (client.test if split == "test" else client.val)]
    if bare:
        raise ValueError(
            f"evaluate.split: found {split!r}, but {_some(bare)} {'has' if len(bare) == 1 else 'have'} no example in it"
        )


def _some(clients: Collection[str]) -> str:
    """Some clients by name, however many there are."""
    first = list(clients)[:3]
    more = len(clients) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
