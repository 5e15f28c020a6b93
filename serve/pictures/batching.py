"""Micro-batches: items of many requests, computed together in one thread, off the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Collects items for at most ``max_wait_ms``, hands up to ``max_batch`` of them to ``compute``, in arrival order.

    ``compute`` returns one result per item. Where it raises, the batch's items are computed one by one, and only those
    at which it raises again get the error. Items whose request has gone away meanwhile are left out.
    """

    def __init__(
        self, compute: Callable[[Sequence[Item]], Sequence[Result]], max_batch: int, max_wait_ms: float
    ) -> None:
        self._compute = compute
        self._max_batch = max_batch
        self._max_wait_s = max_wait_ms / 1000
        self._queue: asyncio.Queue[tuple[Item, asyncio.Future[Result]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Result:
        """The result of one item."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((item, future))
        return await future

    async def close(self) -> None:
        """Ends the worker; what still waits is cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while not self._queue.empty():
            self._queue.get_nowait()[1].cancel()
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._collect(loop)
            waiting = [(item, future) for item, future in batch if not future.done()]
            if waiting and not await self._computed(loop, waiting) and len(waiting) > 1:
                for one in waiting:
                    if not one[1].done():
                        await self._computed(loop, [one])

    async def _computed(
        self, loop: asyncio.AbstractEventLoop, batch: Sequence[tuple[Item, asyncio.Future[Result]]]
    ) -> bool:
        """Computes these together. Whether that went well; the error of a single item is its result."""
        try:
            results = await loop.run_in_executor(self._thread, self._compute, [item for item, _ in batch])
        except Exception as error:
            if len(batch) == 1 and not batch[0][1].done():
                batch[0][1].set_exception(error)
            return False
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():  # its request may have gone away
                future.set_result(result)
        return True

    async def _collect(self, loop: asyncio.AbstractEventLoop) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch = [await self._queue.get()]
        deadline = loop.time() + self._max_wait_s
        while len(batch) < self._max_batch:
            try:
                batch.append(await asyncio.wait_for(self._queue.get(), max(deadline - loop.time(), 0)))
            except TimeoutError:
                if self._queue.empty():
                    break
                batch.append(self._queue.get_nowait())
        return batch
