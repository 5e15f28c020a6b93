"""A request's work ends with its connection: over a real server, plain and streamed, waiting and working."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from serve.disconnects import Disconnects
from tests.serve.listening import listening

ended: list[str] = []
app = FastAPI()
app.add_middleware(Disconnects)


@contextmanager
def noted(name: str) -> Iterator[None]:
    """Adds the name to ``ended`` where the block does."""
    try:
        yield
    finally:
        ended.append(name)


@app.post("/plain")
async def plain(request: Request) -> dict[str, int]:
    with noted("plain"):
        read = len(await request.body())
        await asyncio.sleep(0 if read < 10 else 60)
        return {"read": read}


@app.post("/streamed")
async def streamed(request: Request) -> StreamingResponse:
    read = len(await request.body())

    async def said() -> AsyncIterator[bytes]:
        with noted("streamed"):
            yield b"one"
            await asyncio.sleep(0 if read < 10 else 60)
            yield b"two"

    return StreamingResponse(said())


@pytest.mark.parametrize("path", ["plain", "streamed"])
def test_work_ends_within_a_second_of_its_connection(path: str) -> None:
    ended.clear()
    with listening(app) as port:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=1) as http, pytest.raises(httpx.ReadTimeout):
            http.post(f"/{path}", content=b"x" * 100_000)
        left = time.monotonic()
        while path not in ended and time.monotonic() < left + 5:
            time.sleep(0.01)
        assert ended == [path]
        assert time.monotonic() - left < 1


@pytest.mark.parametrize(("path", "answer"), [("plain", '{"read":2}'), ("streamed", "onetwo")])
def test_whoever_stays_is_answered_over_the_same_connection(path: str, answer: str) -> None:
    ended.clear()
    with listening(app) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
        assert [http.post(f"/{path}", content=b"hm").text for _ in range(3)] == [answer] * 3
    assert ended == [path] * 3
