"""Floods against one gateway on the loopback address, each bounded in count and time, and who watches meanwhile.

Every request is built once, as bytes, and sent over bare sockets: on two cores an attacker that builds requests would
slow the others down by that alone.
"""

import asyncio
import base64
import io
import json
import statistics
import struct
import threading
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil
from PIL import Image

from tests.serve.live import data_url, noise

MIB = 1 << 20
CONNECTION = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Watched:
    """What a bystander and the gateway's memory went through; times by ``time.monotonic``."""

    latencies: list[tuple[float, float]] = field(default_factory=list)  # when asked, seconds until answered
    failures: list[str] = field(default_factory=list)
    peak_mib: float = 0.0

    def median(self, since: float, until: float) -> float:
        """Median seconds of the answers to what was asked between the two times."""
        return statistics.median(took for asked, took in self.latencies if since <= asked < until)


class Watch:
    """A bystander that asks without pause, and a look at the gateway's resident memory every 20 ms."""

    def __init__(self, url: str, key: str, path: str, body: dict[str, Any], pid: int) -> None:
        self.seen = Watched()
        self._url, self._key, self._path, self._body = url, key, path, body
        self._process = psutil.Process(pid)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=act, daemon=True) for act in (self._ask, self._look)]

    def __enter__(self) -> Watched:
        for thread in self._threads:
            thread.start()
        return self.seen

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        headers = {"Authorization": f"Bearer {self._key}"}
        with httpx.Client(base_url=self._url, headers=headers, timeout=180) as http:
            while not self._over.is_set():
                asked = time.monotonic()
                try:
                    answer = http.post(self._path, json=self._body)
                except httpx.HTTPError as error:
                    self.seen.failures.append(repr(error))
                    continue
                if answer.status_code != 200:
                    self.seen.failures.append(answer.text)
                self.seen.latencies.append((asked, time.monotonic() - asked))

    def _look(self) -> None:
        while not self._over.wait(0.02):
            self.seen.peak_mib = max(self.seen.peak_mib, self._process.memory_info().rss / MIB)


def post(path: str, body: bytes, key: str = "", announced: int | None = None) -> bytes:
    """A request as it goes over the wire; ``announced``: a length other than the body's."""
    head = [
        f"POST {path} HTTP/1.1",
        "Host: gateway",
        "Content-Type: application/json",
        f"Content-Length: {len(body) if announced is None else announced}",
        *([f"Authorization: Bearer {key}"] if key else []),
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def chat(model: str, text: str, pictures: Sequence[str] = (), **fields: Any) -> bytes:
    """The body of a chat completion request about those data URLs."""
    content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in pictures]
    content.append({"type": "text", "text": text})
    return json.dumps({"model": model, "messages": [{"role": "user", "content": content}], **fields}).encode()


@asynccontextmanager
async def connected(port: int, count: int) -> AsyncIterator[list[CONNECTION]]:
    """That many connections, as far as they are taken; closed at the end, answered or not."""
    opened: list[CONNECTION] = []
    try:
        for _ in range(count):
            try:
                opened.append(await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 5))
            except (OSError, TimeoutError):
                break
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def flood(port: int, request: bytes, count: int, seconds: float) -> list[bytes]:
    """The first kilobyte of each answer to ``count`` of these requests at once that came within ``seconds``.

    Whoever has no answer by then leaves.
    """

    async def one(connection: CONNECTION) -> bytes:
        reader, writer = connection
        try:
            writer.write(request)
            async with asyncio.timeout(seconds):
                await writer.drain()
                return await reader.read(1024)
        except (OSError, TimeoutError):
            return b""

    async with connected(port, count) as connections:
        return await asyncio.gather(*(one(connection) for connection in connections))


async def still_open(connections: Sequence[CONNECTION]) -> int:
    """How many of them the other side has not closed."""

    async def closed(reader: asyncio.StreamReader) -> bool:
        try:
            async with asyncio.timeout(0.2):
                while await reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    return len(connections) - sum(await asyncio.gather(*(closed(reader) for reader, _ in connections)))


async def half_sent(port: int, path: str, count: int, mib: int, seconds: float, key: str = "") -> int:
    """How many of ``count`` connections are open after ``seconds`` that each sent ``mib`` MiB of a longer body."""
    async with connected(port, count) as connections:

        async def send(writer: asyncio.StreamWriter) -> None:
            piece = b"x" * MIB
            try:
                async with asyncio.timeout(seconds):
                    writer.write(post(path, b"{", key, announced=31 * MIB))
                    for _ in range(mib):
                        writer.write(piece)
                        await writer.drain()
            except (OSError, TimeoutError):
                pass

        began = time.monotonic()
        await asyncio.gather(*(send(writer) for _, writer in connections))
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        return await still_open(connections)


async def endless_header(port: int, mib: int, seconds: float) -> bytes:
    """What is answered to a header of ``mib`` MiB, and nothing where the connection was closed or stayed silent."""
    async with connected(port, 1) as [(reader, writer)]:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: gateway\r\nX-Long: ")
        try:
            async with asyncio.timeout(seconds):
                for _ in range(16 * mib):
                    writer.write(b"x" * (MIB // 16))
                    await writer.drain()
                writer.write(b"\r\n\r\n")
                return await reader.read(1024)
        except (OSError, TimeoutError):
            return b""


async def slow(port: int, count: int, seconds: float) -> int:
    """How many of ``count`` connections are open after ``seconds`` that sent one byte of a header a second."""
    async with connected(port, count) as connections:
        for _, writer in connections:
            writer.write(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for _, writer in connections:
                if not writer.is_closing():
                    writer.write(b"x")
            await asyncio.sleep(1)
        return await still_open(connections)


def thin_png(pixels: int = 4096 * 4096) -> str:
    """A data URL of a PNG that is one pixel wide and that many high, in some fifty kilobytes."""
    rows = zlib.compress(bytes(2 * pixels), 9)  # a filter byte and a grey one each
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 1, pixels, 8, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b"")]
    packed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(packed)).decode()


def large_png(side: int = 4096, mode: str = "RGB") -> str:
    """A data URL of a plain picture of that side: small to send, large to decode."""
    buffer = io.BytesIO()
    Image.new(mode, (side, side)).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def large_webp(side: int = 16383) -> str:
    """A data URL of a plain picture of the largest side that WebP has, in a few kilobytes."""
    buffer = io.BytesIO()
    Image.new("L", (side, side)).save(buffer, "WEBP", lossless=True, method=0)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def small_question(model: str) -> dict[str, Any]:
    """A small question about a small picture, as the bystander asks it."""
    content = [
        {"type": "image_url", "image_url": {"url": data_url(noise(5))}},
        {"type": "text", "text": "what color is the circle?"},
    ]
    return {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 12}
