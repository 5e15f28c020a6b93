"""What the store names for every client and family, as a gateway reads it; one client's damage concerns it alone."""

import itertools
import logging

from adapters_store.store import Live, Store, StoreError
from adapters_store.versions.manifest import FAMILIES, Family
from serve.errors import GatewayError

log = logging.getLogger(__name__)
Place = tuple[str, Family]  # a client, and what it is asked for


def read_pointers(store: Store) -> dict[Place, Live | None]:
    """Every pointer; None where it cannot be read, which changes nothing for its client and family."""
    pointers: dict[Place, Live | None] = {}
    for place in itertools.product(store.clients(), FAMILIES):
        try:
            live = store.live(*place)
        except Exception as error:  # whatever lies there is that client's own
            log.warning("the pointer of %s for family %s cannot be read: %s", *place, error)
            pointers[place] = None
            continue
        if live is not None:
            pointers[place] = live
    return pointers


def versions_of(store: Store, client: str) -> list[str]:
    """The client's versions; 404 where the store says that it cannot have any."""
    try:
        return store.versions(client)
    except StoreError as error:
        raise GatewayError(404, str(error), "model") from error


def names_of(client: str, pointer: Live) -> list[str]:
    """The versions that a pointer leads to, the live one first."""
    return [f"{client}@{version}" for version in (pointer.version, *reversed(pointer.previous))]
