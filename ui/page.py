"""Gradio's own part of the page, where it has to be held to two things: to touch no value, and to drop no answer."""

from collections.abc import Container
from typing import Any

import gradio as gr
from gradio.utils import LRUCache

TABS = 500  # whose events Gradio keeps; more than can wait for an answer at once
STATES = 200  # tabs whose widgets Gradio remembers, about 100 kB each; nothing here depends on it
WORKERS = 96  # events at once: those that are limited below, and some that end at once
WAITING = 256  # events that wait for one


class Page(gr.Blocks):
    """A page whose handlers get what the browser sent, as it sent it.

    Gradio otherwise takes whatever looks like a file for one of its own, copies, fetches or refuses it, and says what
    it found. Here every handler checks each value itself.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.max_threads = WORKERS
        self.state_session_capacity = STATES

    async def preprocess_data(self, block_fn: Any, inputs: list[Any], state: Any, explicit_call: bool = False) -> Any:
        """The values, untouched."""
        self.validate_inputs(block_fn, inputs)
        return list(inputs)

    def protect(self, members: Container[str]) -> None:
        """Lets no number of strangers' tabs push out the answer that one of ``members`` waits for."""
        self.queue(max_size=WAITING)
        self._queue.pending_messages_per_session = _Streams(members, self._queue.pending_event_ids_session)

    def pending(self, tab: str) -> int:
        """Events of the tab whose end it has not fetched."""
        return len(self._queue.pending_event_ids_session.get(tab, ()))

    def waiting(self) -> int:
        """Events for which there is no worker yet."""
        return len(self._queue)


class _Streams(LRUCache[str, Any]):
    """A queue of messages a tab; beyond the limit the oldest goes that is not of a member waiting for an answer."""

    def __init__(self, members: Container[str], events: dict[str, set[str]]) -> None:
        super().__init__(TABS)
        self._members = members
        self._events = events

    def popitem(self, last: bool = True) -> tuple[str, Any]:
        tab = next((tab for tab in self if not (tab in self._members and self._events.get(tab))), next(iter(self)))
        self._events.pop(tab, None)
        return tab, self.pop(tab)
