"""What becomes of the engine's troubles: a hand-written engine that fails in every way the real one might."""

import asyncio
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

from serve.engine_client import EngineClient
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
        client = EngineClient(socket, "key", answer_timeout_s=5)
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


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EngineUnreachableError) as refused:
        with_client(tmp_path / "nothing.sock", lambda client: client.models())
    assert refused.value.status == 503
    assert refused.value.headers()["Retry-After"] == "10"
    assert not with_client(tmp_path / "nothing.sock", lambda client: client.healthy(1))
