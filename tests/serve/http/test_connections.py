"""Connections at their limits, over bare sockets: long headers, slow senders, silent ones, too many, unread answers."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

from serve.http.connections import MAX_HEADER_BYTES, Pace, protocol_of
from tests.serve.listening import listening

PACE = Pace(max_connections=20, header_s=1, body_grace_s=1, body_bytes_per_s=1000, unread_s=2)
app = FastAPI()


@app.get("/")
async def hello() -> str:
    return "hello"


@app.post("/read")
async def read(request: Request) -> int:
    return len(await request.body())


@app.post("/refused")
async def refused() -> PlainTextResponse:
    return PlainTextResponse("no", 401)


@app.get("/long")
async def long() -> PlainTextResponse:
    return PlainTextResponse(b"x" * 50_000_000)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where a server at that pace listens."""
    options = {"http": protocol_of(PACE), "h11_max_incomplete_event_size": MAX_HEADER_BYTES, "timeout_keep_alive": 1}
    with listening(app, **options) as port:
        yield port


def connect(port: int) -> socket.socket:
    """A new connection."""
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def seconds_until_closed(connection: socket.socket, every_s: float = 0.1, sending: bytes = b"") -> float:
    """How long the other side keeps the connection, to which ``sending`` is sent again and again."""
    began = time.monotonic()
    connection.settimeout(every_s)
    while time.monotonic() < began + 10:
        try:
            if sending:
                connection.sendall(sending)
            if not connection.recv(65536):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - began


def alive(port: int) -> bool:
    """Whether somebody else is answered."""
    return httpx.get(f"http://127.0.0.1:{port}/", timeout=5).json() == "hello"


def test_an_ordinary_client_keeps_its_connection(port: int) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
        for _ in range(3):
            assert http.get("/").json() == "hello"
            assert http.post("/read", content=b"x" * 3_000_000).json() == 3_000_000


def test_a_long_header_is_refused_before_it_has_been_read(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX-Long: ")
        assert seconds_until_closed(connection, 0.001, sending=b"x" * 10_000) < PACE.header_s
    assert alive(port)


@pytest.mark.parametrize(
    "begun", [b"", b"GET / HTTP/1.1\r\nX-Slow: ", b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nX-Slow: "]
)
def test_a_silent_or_slow_header_has_its_time(port: int, begun: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(begun)
        assert PACE.header_s < seconds_until_closed(connection, sending=b"x" if begun else b"") < PACE.header_s + 2.5


def test_a_slow_body_has_its_time_and_a_steady_one_all_it_needs(port: int) -> None:
    head = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n"
    with connect(port) as connection:
        connection.sendall(head)
        assert seconds_until_closed(connection, sending=b"x") < PACE.body_grace_s + 2.5
    with connect(port) as connection:
        connection.sendall(head)
        for _ in range(30):
            connection.sendall(b"x" * 300)
            time.sleep(0.1)
        assert connection.recv(1000).endswith(b"9000")


def test_an_answer_that_comes_before_the_body_is_seen_and_ends_the_connection(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 900000000\r\n\r\n" + b"x" * 1_000_000)
        assert b"401" in connection.recv(1000)
        assert seconds_until_closed(connection, sending=b"x" * 1000) < 4


def test_an_answer_that_nobody_reads_is_given_up(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(PACE.unread_s + 10)  # the looks are a second apart, and a busy machine is late with them
        received = 0
        with suppress(OSError):
            while data := connection.recv(1 << 20):
                received += len(data)
        assert received < 50_000_000


def test_of_too_many_connections_the_one_that_waited_longest_makes_room(port: int) -> None:
    opened = [connect(port) for _ in range(3 * PACE.max_connections)]
    try:
        assert alive(port)
        for connection in opened:
            connection.settimeout(0.05)
        closed = [seconds_until_closed(connection, 0.01) < 0.5 for connection in opened[: PACE.max_connections]]
        assert all(closed)
    finally:
        for connection in opened:
            connection.close()
