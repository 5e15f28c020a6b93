"""What a client may know of its own versions."""

from typing import Any

from adapters_store.store import Store, StoreError
from adapters_store.versions.manifest import FAMILIES, Family
from serve.versions.follow import Adapters


def describe(client: str, store: Store, adapters: Adapters) -> dict[str, Any]:
    """The client's versions, oldest first, with their reports; which is live, which answers, which were refused.

    ``families`` says so for each family that it has a pointer of; ``family``, ``live``, ``answering`` and
    ``class_names`` are of the first of them that answers.
    """
    versions = [_version(store, client, version) for version in store.versions(client)]
    families = {family: found for family in FAMILIES if (found := _family(store, adapters, client, family))}
    answering = next((family for family, found in families.items() if found["answering"]), None)
    first = families[answering] if answering else next(iter(families.values()), NOTHING)
    prefix = f"{client}@"
    return {
        "id": client,
        "family": answering,
        **{name: first[name] for name in NOTHING},
        "families": families,
        "versions": versions,
        "refused": {n.removeprefix(prefix): why for n, why in adapters.refused.items() if n.startswith(prefix)},
    }


NOTHING: dict[str, Any] = {"class_names": [], "live": None, "answering": None}


def _family(store: Store, adapters: Adapters, client: str, family: Family) -> dict[str, Any] | None:
    """None where the client has nothing of that family."""
    subject, found = adapters.live(client, family), dict(NOTHING)
    try:
        live = store.live(client, family)
        found["live"] = None if live is None else live.version
    except StoreError as error:
        found["problem"] = str(error)
    if subject is not None:
        found |= {"class_names": list(subject.class_names), "answering": subject.version}
    return found if found != NOTHING else None


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
