"""Micro-batches: shared, in order, and no request's trouble is another's for longer than a batch."""

import asyncio
from collections.abc import Sequence

import pytest

from serve.pictures.batching import Batcher


class Doubler:
    """Doubles numbers, remembers its batches, and fails at -1."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        if -1 in items:
            raise ValueError("minus one")
        return [2 * item for item in items]


def test_requests_share_batches_and_get_their_own_results() -> None:
    doubler = Doubler()

    async def ask() -> list[int]:
        batcher = Batcher(doubler, max_batch=4, max_wait_ms=50)
        results = await asyncio.gather(*(batcher(i) for i in range(10)))
        await batcher.close()
        return results

    assert asyncio.run(ask()) == [2 * i for i in range(10)]
    assert doubler.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_nothing_waits_longer_than_it_should() -> None:
    async def ask() -> float:
        batcher = Batcher(Doubler(), max_batch=100, max_wait_ms=1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await batcher(1)
        await batcher.close()
        return loop.time() - began

    assert asyncio.run(ask()) < 1


def test_an_error_reaches_its_own_item_and_none_of_its_batch() -> None:
    async def ask() -> list[int | BaseException]:
        batcher = Batcher(Doubler(), max_batch=4, max_wait_ms=50)
        results = await asyncio.gather(*(batcher(i) for i in (1, -1, 2, 3)), return_exceptions=True)
        await batcher.close()
        return results

    one, bad, *others = asyncio.run(ask())
    assert [one, *others] == [2, 4, 6]
    assert isinstance(bad, ValueError)


def test_what_nobody_waits_for_any_more_is_not_computed() -> None:
    doubler = Doubler()

    async def ask() -> None:
        batcher = Batcher(doubler, max_batch=2, max_wait_ms=20)
        tasks = [asyncio.create_task(batcher(i)) for i in range(6)]
        await asyncio.sleep(0)
        for task in tasks[:5]:
            task.cancel()
        assert await tasks[5] == 10
        await batcher.close()

    asyncio.run(ask())
    assert doubler.batches in ([[5]], [[0, 1], [5]])  # the first two may have begun


def test_an_error_reaches_its_batch_and_no_other() -> None:
    async def ask() -> None:
        batcher = Batcher(Doubler(), max_batch=1, max_wait_ms=0)
        with pytest.raises(ValueError, match="minus one"):
            await batcher(-1)
        assert await batcher(3) == 6
        await batcher.close()

    asyncio.run(ask())


def test_a_request_that_left_disturbs_nobody() -> None:
    async def ask() -> None:
        batcher = Batcher(Doubler(), max_batch=8, max_wait_ms=20)
        leaving = asyncio.create_task(batcher(1))
        staying = asyncio.create_task(batcher(2))
        await asyncio.sleep(0.001)
        leaving.cancel()
        assert await staying == 4
        await batcher.close()

    asyncio.run(ask())
