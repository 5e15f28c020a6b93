"""``live.json`` of a store from before a client could have a live version per family, read as one pointer a family.

Such a pointer was moved by versions of either family. So it is that of its version's family, and where other families
are among what came before, theirs too: the newest of each answers for it again.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import Annotated

from pydantic import Field

from adapters_store.errors import StoreError
from adapters_store.pointers.pointer import Live, parsed
from adapters_store.versions.manifest import Family, Hex16

log = logging.getLogger(__name__)

OLD = "live.json"
UNREADABLE = 4  # versions before the live one whose family cannot be found out, beyond which none is looked for


class Old(Live):
    """Such a pointer as it was written. A canary was never served."""

    canary: Hex16 | None = None
    canary_percent: Annotated[int, Field(ge=0, le=100)] = 0


def by_family(client: str, data: bytes, family_of: Callable[[str], Family]) -> dict[Family, Live]:
    """The pointers that these bytes stand for. ``family_of`` a version raises StoreError where that cannot be read.

    Of what came before the live version such ones are left out; a live one is of what it replaced. StoreError where
    that is nothing, or the bytes are no pointer.
    """
    old = parsed(Old, data)
    if old.canary is not None:
        _say_ignored(client, old.canary)
    before = _families(old.previous[::-1], family_of)
    try:
        own = family_of(old.version)
    except StoreError:
        if not before:
            raise
        own = next(iter(before.values()))
    found: dict[Family, list[str]] = {}
    for version, family in [*reversed(before.items()), (old.version, own)]:
        found.setdefault(family, []).append(version)
    return {family: Live(version=names[-1], previous=names[:-1]) for family, names in found.items()}


def _families(newest_first: list[str], family_of: Callable[[str], Family]) -> dict[str, Family]:
    """The family of each version that can be read, the newest first."""
    found, unreadable = {}, 0
    for version in newest_first:
        try:
            found[version] = family_of(version)
        except StoreError:
            unreadable += 1
            if unreadable > UNREADABLE:
                break
    return found


@cache
def _say_ignored(client: str, canary: str) -> None:
    """Once: a pointer is read again and again."""
    log.warning("the canary %s@%s is ignored: no gateway serves canaries", client, canary)
