"""What a client may know of its own versions."""

from typing import Any

from adapters_store.store import Store, StoreError
from serve.adapters import Adapters


def describe(client: str, store: Store, adapters: Adapters) -> dict[str, Any]:
    """The client's versions, oldest first, with their reports; which is live, which answers, which were refused."""
    versions = [_version(store, client, version) for version in store.versions(client)]
    live, answering = store.live(client), adapters.live(client)
    prefix = f"{client}@"
    return {
        "id": client,
        "family": None if answering is None else answering.family,
        "class_names": [] if answering is None else list(answering.class_names),
        "live": None if live is None else live.version,
        "answering": None if answering is None else answering.version,
        "versions": versions,
        "refused": {n.removeprefix(prefix): why for n, why in adapters.refused.items() if n.startswith(prefix)},
    }


def _version(store: Store, client: str, version: str) -> dict[str, Any]:
    try:
        artefact = store.artefact(client, version)
    except StoreError as error:
        return {"version": version, "error": str(error)}
    return {
        "version": version,
        "method": artefact.manifest.method,
        "family": artefact.manifest.family,
        "base": artefact.manifest.base.id,
        "report": artefact.report,
    }
