"""Who sends slowly, too much, or on too many connections is broken off with; everybody else is served."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.ui.scripted_gateway import Scripted
from ui import limits


async def length(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def slow(request: Request) -> Response:
    await asyncio.sleep(1)
    return await length(request)


async def much(_: Request) -> Response:
    return Response(b"x" * (64 << 20))


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server with short limits."""
    for name in ("HEADER_S", "BODY_S", "STALL_S"):
        monkeypatch.setattr(limits, name, 0.5)
    monkeypatch.setattr(limits, "CONNECTIONS", 20)
    app = Starlette(
        routes=[
            Route("/", length, methods=["GET", "POST"]),
            Route("/slow", slow, methods=["POST"]),
            Route("/much", much),
        ]
    )
    config = uvicorn.Config(
        app,
        port=0,
        http=limits.BoundedProtocol,
        ws="none",
        h11_max_incomplete_event_size=limits.HEADER_BYTES,
        log_level="critical",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def seconds_until_closed(connection: socket.socket, drip: bytes = b"") -> float:
    """How long the server bears with a connection that sends ``drip`` ten times a second."""
    began = time.monotonic()
    connection.settimeout(0.1)
    while time.monotonic() < began + 10:
        try:
            connection.sendall(drip)
            if not connection.recv(1 << 16):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - began


def served(port: int) -> bool:
    return httpx.post(f"http://127.0.0.1:{port}/", content=b"abc", timeout=10).text == "3"


@pytest.mark.parametrize(
    ("start", "drip"),
    [
        (b"", b""),
        (b"", b"G"),
        (b"GET / HTTP/1.1\r\n", b"a: b\r\n"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n", b"x"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"a"),  # an answer, and then a slow second request
    ],
)
def test_who_sends_slowly_is_broken_off_with(port: int, start: bytes, drip: bytes) -> None:
    connection = connected(port)
    connection.sendall(start)
    assert 0.3 < seconds_until_closed(connection, drip) < 5
    assert served(port)


def test_who_takes_longer_over_a_body_than_over_a_header_is_served(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_S", 5.0)
    connection = connected(port)
    connection.sendall(b"POST /slow HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 10\r\n\r\n")
    for _ in range(10):  # and so is who waits for an answer
        time.sleep(0.1)
        connection.sendall(b"x")
    assert connection.makefile("rb").read().endswith(b"10")


def test_an_answer_that_is_read_slowly_is_read_to_its_end(port: int) -> None:
    connection = connected(port)
    connection.sendall(b"GET /much HTTP/1.1\r\nhost: a\r\n\r\n")
    got, piece, began = 0, b"x", time.monotonic()
    while piece:
        time.sleep(0.06)
        piece = connection.recv(1 << 20)
        got += len(piece)
    assert got > 64 << 20
    assert time.monotonic() - began > 3 * limits.STALL_S


def test_an_answer_that_nobody_reads_is_broken_off(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_S", 30.0)
    connection = connected(port)
    connection.sendall(b"GET /much HTTP/1.1\r\nhost: a\r\n\r\n")
    time.sleep(1.5)
    connection.settimeout(1)
    got, piece = 0, b"x"
    with suppress(ConnectionError):
        while piece:
            piece = connection.recv(1 << 20)
            got += len(piece)
    assert got < 64 << 20


def test_a_header_is_small(port: int) -> None:
    connection = connected(port)
    connection.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * (limits.HEADER_BYTES + 1))
    assert b" 400 " in connection.recv(1 << 10)
    assert served(port)


def test_slow_connections_make_room_for_who_sends_at_once(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_S", 30.0)
    slow = [connected(port) for _ in range(100)]
    assert all(served(port) for _ in range(5))
    for connection in slow[:50]:  # the oldest went first
        connection.settimeout(0.2)
        with pytest.raises((ConnectionError, AssertionError)):
            assert connection.recv(1)
    for connection in slow:
        connection.close()


def test_the_page_itself_is_served_so(scripted: tuple[str, Scripted]) -> None:
    url, _ = scripted
    port = httpx.URL(url).port
    assert port is not None
    connection = connected(port)
    connection.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * (1 << 20))
    assert b" 400 " in connection.recv(1 << 10)
