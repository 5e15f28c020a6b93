"""Pictures of all requests, decoded by a bounded number of threads, in turn among the keys."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from adapters_store.manifest import ImageTransform
from serve.admission import Bounds, Shares
from serve.images import Picture, PixelBudget, bytes_of_data_url, decode_image
from serve.settings import Settings


class Decoder:
    """Decodes one picture of a request after another, and makes it as small as the encoder takes it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        threads = settings.decode_threads
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="decoder")
        waiting = settings.max_waiting
        self._turns = Shares(Bounds(threads, threads, threads, waiting, "pictures of this key wait to be decoded"))

    def close(self) -> None:
        """Ends the threads, once they are done with what they decode."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def of_urls(self, owner: str, urls: Sequence[tuple[str, str]], transform: ImageTransform) -> list[Picture]:
        """The pictures of (data URL, name of its field); 400 with the first at fault."""
        budget = PixelBudget(self._settings.max_request_pixels)

        def decode(url: str, field: str) -> Picture:
            return decode_image(bytes_of_data_url(url, self._settings, field), transform, self._settings, field, budget)

        return [await self._in_turn(owner, partial(decode, url, field)) for url, field in urls]

    async def one(self, owner: str, image: str | bytes, transform: ImageTransform, field: str) -> Picture:
        """The picture of a data URL or a file; 400 where it is too large or not an image."""
        if isinstance(image, str):
            return (await self.of_urls(owner, [(image, field)], transform))[0]
        return await self._in_turn(owner, partial(decode_image, image, transform, self._settings, field))

    async def _in_turn(self, owner: str, decode: Callable[[], Picture]) -> Picture:
        """Holds the key's turn until its thread is free again, even where the request has gone away meanwhile."""
        async with self._turns.place(owner):
            work = asyncio.get_running_loop().run_in_executor(self._threads, decode)
            try:
                return await asyncio.shield(work)
            finally:
                await asyncio.wait({work})
                work.cancelled() or work.exception()  # seen, though nobody may be left to hear of it
