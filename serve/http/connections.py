"""Connections, before anything of the gateway sees a request: how many, how long a header, and how slow a sender.

uvicorn's own limits do not cover these: its parser by httptools takes a header of any length, and neither parser ends a
connection that is silent or slow in the middle of a request.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_HEADER_BYTES = 32 << 10  # request line and headers together
LOOK_EVERY_S = 1.0
LINGER_S = 2.0  # after an answer that came before the body's end: time for the sender to see it
Phase = Literal["header", "body", "answer", "unread", "linger"]


@dataclass(frozen=True)
class Pace:
    """How many connections there may be, and how fast each has to be."""

    max_connections: int
    header_s: float  # from the connection, or the end of the answer before, to the header's end: idle time counts
    body_grace_s: float = 10  # of a body, before its pace counts
    body_bytes_per_s: int = 64 << 10  # on average, from then on
    unread_s: float = 60  # that an answer may lie there unread


def protocol_of(pace: Pace) -> type[H11Protocol]:
    """uvicorn's protocol for HTTP/1.1, at that pace."""
    return type("PacedConnection", (_Connection,), {"pace": pace})


class _Connection(H11Protocol):
    """One connection. Where there are too many, the one that has kept the gateway waiting longest makes room."""

    pace: Pace

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._phase: Phase = "header"
        self._since = time.monotonic()
        self._bytes = 0  # of the body
        self._timer = self.loop.call_later(LOOK_EVERY_S, self._look)
        if len(self.connections) > self.pace.max_connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _note(self) -> None:
        """Notes what is waited for now, and since when."""
        found = self._found()
        if found != self._phase:
            self._phase, self._since, self._bytes = found, time.monotonic(), 0

    def _found(self) -> Phase:
        if self.conn.their_state is h11.IDLE:
            return "header"
        if self.conn.their_state is h11.SEND_BODY:
            return "linger" if self.conn.our_state in (h11.DONE, h11.MUST_CLOSE) else "body"
        return "unread" if self.flow.write_paused else "answer"

    def _look(self) -> None:
        self._note()
        if self._phase == "body" and self.flow.read_paused:
            self._since += LOOK_EVERY_S  # it is the gateway that takes its time
        if not self._late():
            self._timer = self.loop.call_later(LOOK_EVERY_S, self._look)
        elif self._phase == "unread":
            self.transport.abort()  # closing would wait for it to be read
        else:
            self.transport.close()

    def _late(self) -> bool:
        waited = time.monotonic() - self._since
        if self._phase == "body":
            return (waited - self.pace.body_grace_s) * self.pace.body_bytes_per_s > self._bytes
        limits = {"header": self.pace.header_s, "unread": self.pace.unread_s, "linger": LINGER_S}
        return waited > limits.get(self._phase, float("inf"))

    def _make_room(self) -> None:
        waited_for = [one for one in self.connections if isinstance(one, _Connection) and one._keeps_waiting]
        min(waited_for, key=lambda one: one._since, default=self).transport.abort()

    @property
    def _keeps_waiting(self) -> bool:
        return self._phase in ("header", "body", "linger") and not self.flow.read_paused
