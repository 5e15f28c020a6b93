"""Sandboxes for prompt templates, used in turn and off the event loop."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakValueDictionary

from adapters_store.templates.chat_template import Conversation
from adapters_store.templates.sandbox import Sandbox

COUNT = 2  # a template that is slow keeps one of them busy; the others' use the other


class Sandboxes:
    """Renders any number of templates at the same time, each in one sandbox at most."""

    def __init__(self) -> None:
        self._all = [Sandbox() for _ in range(COUNT)]
        self._free: asyncio.Queue[Sandbox] = asyncio.Queue()
        for sandbox in self._all:
            self._free.put_nowait(sandbox)
        self._threads = ThreadPoolExecutor(COUNT, thread_name_prefix="templates")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by template

    async def render(self, template: str, conversation: Conversation, special: Mapping[str, str]) -> str:
        """As ``Sandbox.render``."""
        work = asyncio.create_task(self._in_turn(template, conversation, special))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to look at it
        return await asyncio.shield(work)  # whoever asked may go away; the sandbox is busy until it is through

    async def close(self) -> None:
        """Ends the processes."""
        for sandbox in self._all:
            sandbox.close()  # what one of them is still rendering fails
        self._threads.shutdown(wait=True)

    async def _in_turn(self, template: str, conversation: Conversation, special: Mapping[str, str]) -> str:
        turn = self._turns.get(template)
        if turn is None:
            turn = self._turns[template] = asyncio.Lock()
        async with turn:
            sandbox = await self._free.get()
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, sandbox.render, template, conversation, special)
            finally:
                self._free.put_nowait(sandbox)
