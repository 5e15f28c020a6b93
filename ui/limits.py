"""How long and how much anybody may send before an application sees it: HTTP/1.1 with bounds on a connection."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 512  # at once; below the usual 1024 open files of a process
HEADER_BYTES = 32 << 10
HEADER_S = 10.0  # from the connection, or the end of the answer before, to the end of a request's header
BODY_S = 120.0  # from there to the end of its body: ten megabytes at 0.7 Mbit/s
STALL_S = 30.0  # of an answer of which nothing is read


class BoundedProtocol(H11Protocol):
    """Uvicorn's protocol, which breaks off with who sends or reads too slowly.

    Where there are too many connections, the one that has been sending for longest makes room: somebody who sends a
    whole request at once is served however many others are slow.
    """

    _timer: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _unread = 0  # bytes
    _phase: object = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > CONNECTIONS:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(STALL_S, self._check_progress)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall:
            self._stall.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._timer, self._stall):
            if timer:
                timer.cancel()

    @property
    def sending(self) -> bool:
        """Whether the other side has yet to end what it sends."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _watch(self) -> None:
        """Starts the clock anew whenever the other side begins with a header or a body, and stops it at the end."""
        phase = self.conn.their_state
        if phase is self._phase:
            return
        if self._timer:
            self._timer.cancel()
        self._phase, self._since = phase, self.loop.time()
        limit_s = {h11.IDLE: HEADER_S, h11.SEND_BODY: BODY_S}.get(phase)
        self._timer = None if limit_s is None else self.loop.call_later(limit_s, self._break_off)

    def _break_off(self) -> None:
        """Closes the connection; an answer that is still being read is read to its end."""
        if self.transport.get_write_buffer_size():
            self.transport.close()
        else:
            self.transport.abort()

    def _check_progress(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread >= self._unread:
            self.transport.abort()
        else:
            self._unread = unread
            self._stall = self.loop.call_later(STALL_S, self._check_progress)

    def _make_room(self) -> None:
        others = [other for other in self.connections if isinstance(other, BoundedProtocol) and other.sending]
        min(others, key=lambda other: other._since, default=self).transport.abort()
