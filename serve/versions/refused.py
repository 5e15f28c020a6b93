"""Versions that are not served, each with the reason, and when one of them is looked at again."""

import logging
import math
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

DEADLY_LOADS = 2  # how often the engine may end while it loads a version, before that version is refused


class Refused:
    """Reasons by name (``client@version``)."""

    def __init__(self, retry_after_s: float) -> None:
        self._retry_after_s = retry_after_s
        self._until: dict[str, float] = {}
        self._deadly: dict[str, int] = {}
        self.reasons: dict[str, str] = {}

    def now(self, name: str) -> bool:
        """Whether the version is refused without another look at it."""
        return time.monotonic() < self._until.get(name, 0)

    def add(self, name: str, why: str, for_good: bool = False) -> None:
        """Refuses the version for a while, or until somebody asks for another look at it."""
        sentence = why if why.startswith(name) else f"{name} is refused: {why}"
        if self.reasons.get(name) != sentence:
            log.error("%s", sentence)
        self.reasons[name] = sentence
        self._until[name] = math.inf if for_good else time.monotonic() + self._retry_after_s

    def add_deadly(self, name: str) -> None:
        """Notes that the engine ended while it loaded the version, which is refused for good if it does so again."""
        self._deadly[name] = self._deadly.get(name, 0) + 1
        if self._deadly[name] >= DEADLY_LOADS:
            self.add(name, "the engine ended while loading it", for_good=True)

    def forgive(self, name: str) -> None:
        """Drops what was noted of the version."""
        for noted in (self.reasons, self._until, self._deadly):
            noted.pop(name, None)

    def look_again(self) -> None:
        """Has every version tried once more."""
        self._until.clear()
        self._deadly.clear()

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Forgets the versions that are not ``wanted`` any more."""
        for name in [*self.reasons.keys(), *self._deadly.keys()]:
            if not wanted(name):
                self.forgive(name)
