"""A request's work ends with its connection: over a real server, plain and streamed, waiting and working."""

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from serve.http.disconnects import Disconnects
from tests.serve.listening import listening
from tests.serve.live import LiveGateway

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


def in_engine(gateway: LiveGateway) -> float:
    """How many answers the engine is working on, or is about to, by its own count."""
    words = [word for process in gateway.engine_processes() for word in process.cmdline()]
    path = next(word for word in words if word.endswith("engine.sock"))
    with httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url="http://engine") as http:
        said = http.get("/metrics").text
    return sum(map(float, re.findall(r"^vllm:num_requests_(?:running|waiting){.*} (.*)$", said, re.MULTILINE)))


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_nobody_waits_for_leaves_the_engine(gateway: LiveGateway, stream: bool) -> None:
    asked = {"model": "ann", "messages": [{"role": "user", "content": "what?"}], "max_tokens": 480, "stream": stream}
    leave = threading.Event()

    def ask() -> None:
        with (
            gateway.http() as http,
            http.stream("POST", "/v1/chat/completions", json=asked | {"n": 8, "temperature": 2}, timeout=1) as answer,
        ):
            for _ in answer.iter_lines():
                if leave.is_set():
                    break

    asking = threading.Thread(target=lambda: suppressed(ask))
    asking.start()
    deadline = time.monotonic() + 20
    while in_engine(gateway) == 0:
        assert time.monotonic() < deadline
    leave.set()
    asking.join()
    left = time.monotonic()
    while in_engine(gateway) > 0:
        assert time.monotonic() < left + 1.5


def suppressed(act: Callable[[], None]) -> None:
    """Does it; whoever loses patience does so silently."""
    with suppress(httpx.ReadTimeout):
        act()
