"""Pictures of all requests, decoded by a bounded number of threads, in turn among the keys."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from adapters_store.pictures.reader import Window
from adapters_store.pictures.transform import ImageTransform
from serve.http.admission import Bounds, Shares
from serve.pictures.images import (
    Opened,
    Picture,
    Sent,
    bytes_of_data_url,
    check_together,
    decode,
    decode_image,
    open_image,
)
from serve.settings import Settings

Result = TypeVar("Result")


class Decoder:
    """Decodes one picture of a request after another, and makes it as small as the encoder takes it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        threads = settings.decode_threads
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="decoder")
        waiting = settings.max_waiting
        self._turns = Shares(Bounds(threads, 1, 1, waiting, "pictures of this key wait to be decoded"))

    def close(self) -> None:
        """Ends the threads, once they are done with what they decode."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def of_urls(self, owner: str, sent: Sequence[Sent], transform: ImageTransform) -> list[Picture]:
        """The pictures; 400 with the first at fault, before any has been decoded."""
        opened = await self._in_turn(owner, partial(_open, sent, self._settings))
        pictures = []
        while opened:  # an image that has been decoded holds all of its pixels: it goes before the next
            pictures.append(await self._in_turn(owner, partial(decode, opened.popleft(), transform)))
        return pictures

    async def of_file(
        self, owner: str, data: bytes, transform: ImageTransform, field: str, window: Window | None
    ) -> Picture:
        """The picture in a file; 400 where it is too large or not an image."""
        return await self._in_turn(owner, partial(decode_image, data, transform, self._settings, field, window))

    async def _in_turn(self, owner: str, act: Callable[[], Result]) -> Result:
        """Holds the key's turn until its thread is free again, even where the request has gone away meanwhile."""
        async with self._turns.place(owner):
            work = asyncio.get_running_loop().run_in_executor(self._threads, act)
            try:
                return await asyncio.shield(work)
            finally:
                await asyncio.wait({work})
                work.cancelled() or work.exception()  # seen, though nobody may be left to hear of it


def _open(sent: Sequence[Sent], settings: Settings) -> deque[Opened]:
    opened = [
        open_image(bytes_of_data_url(one.url, settings, one.param), settings, one.param, one.window) for one in sent
    ]
    check_together(opened, settings)
    return deque(opened)
