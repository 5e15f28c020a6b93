"""Places in turn: nobody's flood is everybody's queue, nobody waits for ever, nothing is lost where somebody goes."""

import asyncio

import pytest

from serve.errors import GatewayError
from serve.http.admission import Admission, Bounds, Shares
from serve.settings import Settings


class Work:
    """Requests that hold a place until they are told to end; ``began`` lists whose did, in order."""

    def __init__(self, shares: Shares) -> None:
        self.began: list[str] = []
        self.running: list[tuple[str, asyncio.Event]] = []
        self._shares = shares

    def ask(self, who: str, weight: int = 1) -> "asyncio.Task[None]":
        """One more request of theirs."""
        return asyncio.create_task(self._hold(who, weight))

    def end(self, who: str) -> None:
        """Ends the oldest of theirs."""
        place = next(i for i, (name, _) in enumerate(self.running) if name == who)
        self.running.pop(place)[1].set()

    async def _hold(self, who: str, weight: int) -> None:
        async with self._shares.place(who, weight):
            self.began.append(who)
            over = asyncio.Event()
            self.running.append((who, over))
            await over.wait()


async def settle() -> None:
    """Lets every task come to where it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


def shares(**changed: int) -> Shares:
    """Eight places, six of them for one alone, two for each of several; three may wait."""
    return Shares(Bounds(**{"all": 8, "alone": 6, "share": 2, "waiting": 3, "what": "wait", **changed}))  # type: ignore[arg-type]


def test_one_alone_gets_many_and_leaves_room() -> None:
    async def ask() -> None:
        work = Work(shares())
        tasks = [work.ask("ann") for _ in range(9)]
        await settle()
        assert work.began == ["ann"] * 6
        tasks.append(work.ask("bob"))  # at once, though ann's requests wait
        await settle()
        assert work.began[6:] == ["bob"]
        with pytest.raises(GatewayError) as refused:
            await work.ask("ann")
        assert refused.value.status == 429
        assert refused.value.headers()["Retry-After"] == "1"
        assert refused.value.body()["error"]["code"] == "rate_limit_exceeded"
        for task in tasks:
            task.cancel()

    asyncio.run(ask())


def test_with_others_about_each_gets_a_share_and_those_who_wait_come_in_turn() -> None:
    async def ask() -> None:
        work = Work(shares(all=3))
        tasks = [work.ask(who) for who in ("ann", "bob", "ann", "ann", "ann", "cat", "dan")]
        await settle()
        assert work.began == ["ann", "bob", "ann"]
        while len(work.began) < 7:
            work.end(work.running[0][0])
            await settle()
            assert len(work.running) == 3
        assert work.began[3:] == ["ann", "cat", "dan", "ann"]  # nobody waits for another's second turn
        for task in tasks:
            task.cancel()

    asyncio.run(ask())


def test_several_answers_count_as_several_and_more_than_a_share_are_had_alone() -> None:
    async def ask() -> None:
        work = Work(shares())
        tasks = [work.ask("bob"), work.ask("ann", 8)]
        await settle()
        assert work.began == ["bob", "ann"]
        tasks.append(work.ask("ann"))
        await settle()
        assert work.began == ["bob", "ann"]
        work.end("ann")
        await settle()
        assert work.began == ["bob", "ann", "ann"]
        tasks.append(work.ask("ann", 8))
        await settle()
        assert len(work.began) == 3
        for task in tasks:
            task.cancel()

    asyncio.run(ask())


def test_whoever_goes_away_gives_up_the_place_and_the_wait() -> None:
    async def ask() -> None:
        work = Work(shares(alone=1))
        first, second, third = work.ask("ann"), work.ask("ann"), work.ask("ann")
        await settle()
        second.cancel()
        await settle()
        first.cancel()
        await settle()
        assert work.began == ["ann", "ann"]
        third.cancel()
        await settle()
        last = work.ask("ann")
        await settle()
        assert len(work.began) == 3
        last.cancel()

    asyncio.run(ask())


def test_whoever_goes_away_in_the_moment_of_their_turn_gives_it_back() -> None:
    async def ask() -> None:
        work = Work(shares(alone=1))
        tasks = [work.ask("ann") for _ in range(3)]
        await settle()
        work.end("ann")
        await asyncio.sleep(0)  # the first goes, and its turn is given: nobody has taken it yet
        tasks[1].cancel()
        await settle()
        assert tasks[1].cancelled()
        assert len(work.began) == 2
        assert len(work.running) == 1  # the third, in its place
        for task in tasks:
            task.cancel()

    asyncio.run(ask())


def test_a_body_counts_as_its_length_and_an_unknown_one_as_the_longest() -> None:
    async def ask() -> None:
        admission = Admission(Settings(max_body_bytes=1024, max_waiting=1))
        for announced, fit in (("1024", 2), (None, 2), ("512", 4), ("99999999", 2), ("-5", 2), ("²", 2)):
            held = [asyncio.create_task(_held(admission, announced)) for _ in range(fit + 1)]
            await settle()
            assert sum(task.done() for task in held) == 0
            with pytest.raises(GatewayError, match="wait to be read"):
                await asyncio.wait_for(_held(admission, announced), 1)
            for task in held:
                task.cancel()
            await settle()

    asyncio.run(ask())


async def _held(admission: Admission, announced: str | None) -> None:
    async with admission.body("ann", announced):
        await asyncio.Event().wait()
