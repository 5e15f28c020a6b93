"""What becomes of the engine's troubles: a hand-written engine that fails in every way the real one might."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from serve.engine.client import EngineClient
from serve.errors import EngineUnreachableError, GatewayError

engine = FastAPI()
TOO_LONG = "This model's maximum context length is 512 tokens. (parameter=input_text, value=9)"
CHUNK = {"id": "1", "choices": [{"delta": {"content": "a"}}]}


@engine.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    asked = await request.json()
    if "stream" in asked:
        return StreamingResponse(events(asked["model"]), media_type="text/event-stream")
    return {
        "fine": JSONResponse(CHUNK),
        "too long": JSONResponse({"error": {"message": TOO_LONG}}, 400),
        "odd": JSONResponse({"error": {"message": "EngineCore: AssertionError in /opt/vllm/worker.py"}}, 400),
        "broken": JSONResponse({"error": {"message": "worker died"}}, 500),
        "gone": JSONResponse({"message": "no such model"}, 404),
        "not json": Response("oops", 500),
    }[asked["model"]]


async def events(how: str) -> AsyncIterator[str]:
    yield f"data: {json.dumps(CHUNK)}\n\n"
    if how == "cut":
        raise RuntimeError("the connection ends here")
    if how == "error":
        yield f"data: {json.dumps({'error': {'message': 'EngineCore died'}})}\n\n"
    yield "data: [DONE]\n\n"


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the hand-written engine listens."""
    path = tmp_path_factory.mktemp("engine") / "engine.sock"
    server = uvicorn.Server(uvicorn.Config(engine, uds=str(path), log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield path
    server.should_exit = True
    thread.join()


def with_client(socket: Path, act: Callable[[EngineClient], Coroutine[Any, Any, Any]]) -> Any:
    """The result of ``act`` with a client of that engine."""

    async def run() -> Any:
        client = EngineClient(socket, "key", answer_timeout_s=5, sentinel=3)
        try:
            return await act(client)
        finally:
            await client.close()

    return asyncio.run(run())


async def said(client: EngineClient, model: str) -> list[dict[str, Any]]:
    """The chunks of a stream."""
    return [chunk async for chunk in client.stream({"model": model})]


def test_answers_pass(socket: Path) -> None:
    assert with_client(socket, lambda client: client.chat({"model": "fine"})) == CHUNK
    assert with_client(socket, lambda client: said(client, "fine")) == [CHUNK]


@pytest.mark.parametrize(
    ("model", "status", "reason"),
    [("too long", 400, "is 512 tokens"), ("odd", 400, "cannot do what this request asks"),
     ("broken", 503, "could not do this"), ("gone", 503, "could not do this"), ("not json", 503, "could not do this")],
)  # fmt: skip
def test_refusals_are_in_our_words_but_for_the_length(
    socket: Path, model: str, status: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(GatewayError, match=reason) as refused:
        with_client(socket, lambda client: client.chat({"model": model}))
    assert refused.value.status == status
    assert not any(word in refused.value.message for word in ("parameter", "worker", "vllm", "EngineCore", "model ID"))
    if model in ("odd", "broken"):
        assert "worker" in caplog.text  # whoever runs the gateway can read it


def test_an_engine_that_ends_in_the_middle_is_said_to(socket: Path) -> None:
    with pytest.raises(EngineUnreachableError):
        with_client(socket, lambda client: said(client, "cut"))
    with pytest.raises(GatewayError, match="in the middle of the answer") as refused:
        with_client(socket, lambda client: said(client, "error"))
    assert "EngineCore" not in refused.value.message


def answer_of(chunk: dict[str, Any]) -> bytes:
    """It as a whole answer over HTTP, after which the connection may be used again."""
    body = json.dumps(chunk).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """One request, head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    return head + await reader.readexactly(length)


@contextlib.asynccontextmanager
async def closing_engine(path: Path, answers_each: int) -> AsyncIterator[list[bytes]]:
    """An engine that answers so often over one connection, reads one request more, and closes it; what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            for _ in range(answers_each):
                asked.append(await read_request(reader))
                writer.write(answer_of(CHUNK))
            asked.append(await read_request(reader))
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        yield asked


def test_an_idle_connection_that_is_closed_as_it_is_used_is_no_error(tmp_path: Path) -> None:
    async def run() -> None:
        async with closing_engine(tmp_path / "engine.sock", answers_each=1) as asked:
            client = EngineClient(tmp_path / "engine.sock", "key", answer_timeout_s=5, sentinel=3)
            for _ in range(4):
                assert await client.chat({"model": "fine"}) == CHUNK
            assert await said(client, "fine") == []  # the hand-written engine streams nothing
            for _ in range(3):
                await client.load("ann@1", tmp_path)  # never over a connection that may be closing
            loads = [request for request in asked if b"load_lora_adapter" in request]
            assert len(loads) == 3
            await client.close()

    asyncio.run(run())


def test_an_engine_that_answers_nothing_is_asked_twice_and_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with closing_engine(tmp_path / "engine.sock", answers_each=0) as asked:
            client = EngineClient(tmp_path / "engine.sock", "key", answer_timeout_s=5, sentinel=3)
            with pytest.raises(EngineUnreachableError):
                await client.chat({"model": "fine"})
            assert len(asked) == 2
            with pytest.raises(EngineUnreachableError):
                await client.load("ann@1", tmp_path)
            assert len(asked) == 3
            await client.close()

    asyncio.run(run())


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachableError) as refused:
        with_client(tmp_path / "nothing.sock", lambda client: client.models())
    assert refused.value.status == 503
    assert refused.value.headers()["Retry-After"] == "10"
    assert not with_client(tmp_path / "nothing.sock", lambda client: client.healthy(1))
