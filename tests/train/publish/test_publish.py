"""What a published manifest says of its method."""

from pathlib import Path
from typing import Any

from adapters_store.store import Store
from tests.train.small import config, federation
from train.publish.versions import publish


def test_a_manifest_tells_who_sees_what(clip: Any, tmp_path: Path) -> None:
    """The method's trust model, to the letter."""
    loop, _ = federation(config("promptfl"), clip, tmp_path)
    method, client = loop.method, loop.clients[0]
    state = method.initial(clip, loop.clients, 0)
    artefacts = {client.id: method.publish(clip, client, state)}
    store = Store(tmp_path / "store")
    versions = publish(store, method, clip, artefacts, {client.id: {}}, {}, activate=True)
    manifest = store.artefact(client.id, versions[client.id]).manifest
    assert manifest.trust == type(method).trust
    assert manifest.trust.aggregator
