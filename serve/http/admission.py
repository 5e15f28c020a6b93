"""Who may have how much at once: places that are given out in turn, so that nobody's flood is everybody's queue."""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from serve.errors import GatewayError
from serve.settings import Settings

RECENT_S = 30.0  # whoever asked within these seconds counts as somebody to leave room for
RETRY_AFTER_S = 1


@dataclass(frozen=True)
class Bounds:
    """Units (requests, answers or bytes) that all may hold together, one alone, and one while there are others."""

    all: int
    alone: int
    share: int
    waiting: int  # requests of one that may wait; further ones are refused
    what: str  # for the sentence that refuses them


@dataclass(eq=False)
class _Waiting:
    weight: int
    turn: "asyncio.Future[None]"


class Shares:
    """Places by whoever asks for them: in turn among all who wait, in order of arrival for each."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._held: Counter[str] = Counter()
        self._seen: OrderedDict[str, float] = OrderedDict()  # when each was last here, the latest at the end
        self._queues: OrderedDict[str, deque[_Waiting]] = OrderedDict()  # whose turn is next comes first

    @asynccontextmanager
    async def place(self, who: str, weight: int = 1) -> AsyncIterator[None]:
        """Holds ``weight`` units, once there is room for them; 429 where too many of theirs wait already.

        More than one may have at once is held by whoever holds nothing else.
        """
        await self._enter(who, weight)
        try:
            yield
        finally:
            self._leave(who, weight)

    async def _enter(self, who: str, weight: int) -> None:
        self._notice(who)
        queue = self._queues.setdefault(who, deque())
        if len(queue) >= self._bounds.waiting:
            raise self._too_many()
        one = _Waiting(weight, asyncio.get_running_loop().create_future())
        queue.append(one)
        self._give()
        try:
            await one.turn
        except asyncio.CancelledError:
            if one.turn.cancelled():
                self._forget(who, one)
            else:  # its turn came in the same moment
                self._leave(who, weight)
            raise

    def _leave(self, who: str, weight: int) -> None:
        self._held[who] -= weight
        if not self._held[who]:
            del self._held[who]
        self._notice(who)
        self._give()

    def _give(self) -> None:
        """Gives places to those who wait, one each in turn, as long as somebody's next request has room."""
        passed = 0
        while passed < len(self._queues):
            who, queue = next(iter(self._queues.items()))
            self._queues.move_to_end(who)
            while queue and queue[0].turn.cancelled():
                queue.popleft()
            if queue and self._has_room(who, queue[0].weight):
                one = queue.popleft()
                self._held[who] += one.weight
                one.turn.set_result(None)
                passed = 0
            else:
                passed += 1
            if not queue:
                del self._queues[who]
                passed = 0

    def _has_room(self, who: str, weight: int) -> bool:
        bound = self._bounds.share if self._others(who) else self._bounds.alone
        fits = not self._held[who] or self._held[who] + weight <= bound
        return fits and self._held.total() + min(weight, self._bounds.share) <= self._bounds.all

    def _others(self, who: str) -> bool:
        """Whether anybody else holds a place, or asked for one not long ago."""
        if len(self._held) > (who in self._held):
            return True
        latest = next((seen for other, seen in reversed(self._seen.items()) if other != who), None)
        return latest is not None and time.monotonic() - latest < RECENT_S

    def _notice(self, who: str) -> None:
        now = time.monotonic()
        self._seen[who] = now
        self._seen.move_to_end(who)
        while now - next(iter(self._seen.values())) >= RECENT_S:
            self._seen.popitem(last=False)

    def _forget(self, who: str, one: _Waiting) -> None:
        if one in self._queues.get(who, ()):
            self._queues[who].remove(one)
        self._give()

    def _too_many(self) -> GatewayError:
        return GatewayError(
            429, f"{self._bounds.waiting} {self._bounds.what} already: try again shortly", retry_after_s=RETRY_AFTER_S
        )


class Admission:
    """What every request passes: its body's bytes first, and when it has been read, its place among the answers."""

    def __init__(self, settings: Settings) -> None:
        largest, places, waiting = settings.max_body_bytes, settings.max_in_flight, settings.max_waiting
        self._largest = largest
        self._bodies = Shares(
            Bounds(4 * largest, 2 * largest, largest, waiting, "requests of this key wait to be read")
        )
        self._keys = Shares(Bounds(places, places // 2, settings.key_share, waiting, "requests of this key wait"))
        self._clients = Shares(Bounds(places, places, settings.client_share, waiting, "requests for this model wait"))

    def body(self, owner: str, announced: str | None) -> AbstractAsyncContextManager[None]:
        """Room for a body of the announced length, of the longest where none is announced."""
        known = announced is not None and announced.isdecimal()
        return self._bodies.place(owner, min(int(announced or 0), self._largest) if known else self._largest)

    @asynccontextmanager
    async def answers(self, owner: str, client: str, count: int = 1) -> AsyncIterator[None]:
        """Places for so many answers to whoever holds the key, by that client's model."""
        async with self._keys.place(owner, count), self._clients.place(client, count):
            yield
