"""One gateway for the whole session: starting its engine takes longer than most tests."""

from collections.abc import Iterator

import pytest

from adapters_store.store import Store
from tests.serve.artefacts import gated_tensors, publish_head, publish_lora, publish_prompt
from tests.serve.live import LiveGateway, running_gateway

MAX_TOKENS = 48
"""Answer length of the session's gateway where a request names none."""


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """Clients ``ann``, ``bob`` and ``global`` chat, ``cat`` and ``dot`` (gated) classify; ``key(…)`` opens any."""
    store = Store(tmp_path_factory.mktemp("serve") / "store")
    for seed, client in enumerate(("ann", "bob", "global")):
        publish_lora(store, client, seed)
    publish_prompt(store, "cat", seed=7)
    publish_head(store, "dot", gated_tensors(8))
    # random adapters babble on: short answers, before rounding decides between two words that are equally likely
    # and what holds where the bound on an adapter's size does not is only to be seen without the bound
    options = {"watch_interval_s": 0.2, "default_max_tokens": MAX_TOKENS, "max_update_ratio": 1e300}
    with running_gateway(store.root, **options) as live:
        yield live
