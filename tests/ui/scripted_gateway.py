"""A gateway that answers as a test tells it to: slowly, with another version, with the engine's own words, or not."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

ENGINES_WORDS = "EngineCore encountered an issue. See stack trace (above) for the root cause."
LENGTH = ["is", "a", "question", "that", "this", "model", "answers", "at", "length"]
CLIENTS = {"amy": ("mllm",), "bob": ("mllm",), "cat": ("clip",), "two": ("mllm", "clip")}


@dataclass
class Scripted:
    """What it does, to be changed at any time. A key is the names of its clients, as in ``amy+cat``."""

    url: str = ""
    version: str = "0000000000000001"  # that chats
    sorting: str = "00000000000000c1"  # that sorts pictures
    piece_s: float = 0.0  # between two words of an answer
    dies: bool = False  # in the middle of each answer
    revoked: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    pictures: int = 0  # requests that came with one


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message}}, status)


def application(script: Scripted) -> FastAPI:
    """The four routes that the page knows."""
    app = FastAPI()

    def source(client: str, version: str) -> dict[str, str]:
        return {"client": client, "version": version, "base": "00000000000000ba"}

    def refused(request: Request) -> JSONResponse | None:
        key = request.headers["authorization"].removeprefix("Bearer ")
        return _error(401, "this API key is not known") if key in script.revoked else None

    @app.post("/v1/login")
    async def login(request: Request) -> object:
        clients = (await request.json())["key"].split("+")
        return {"clients": clients} if set(clients) <= CLIENTS.keys() else _error(401, "this API key is not known")

    @app.get("/v1/clients/{client}")
    async def describe(client: str, request: Request) -> object:
        versions = {"mllm": script.version, "clip": script.sorting}
        return refused(request) or {"families": {family: {"answering": versions[family]} for family in CLIENTS[client]}}

    @app.post("/v1/classify")
    async def classify(request: Request) -> object:
        if refused(request):
            return refused(request)
        script.pictures += 1
        top = [{"class_name": "circle", "probability": 0.75}, {"class_name": "square", "probability": 0.25}]
        experts = [{"id": "own", "weight": 1.0}]
        return {"top": top, "experts": experts, "fedtailor": source((await request.json())["model"], script.sorting)}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> object:
        if refused(request):
            return refused(request)
        body = await request.json()
        content = body["messages"][0]["content"]
        script.asked.append(content[-1]["text"])
        script.pictures += len(content) - 1
        words = [f"<{content[-1]['text']}>", *LENGTH]

        async def stream(answered_by: dict[str, str]) -> AsyncIterator[str]:
            for position, word in enumerate(words):
                if script.dies and position == 2:
                    yield f"data: {json.dumps({'error': {'message': ENGINES_WORDS}})}\n\n"
                    return
                chunk = {"choices": [{"delta": {"content": word + " "}}], "fedtailor": answered_by}
                yield f"data: {json.dumps(chunk)}\n\n"
                await asyncio.sleep(script.piece_s)
            yield "data: [DONE]\n\n"

        return StreamingResponse(stream(source(body["model"], script.version)), media_type="text/event-stream")

    return app


@contextmanager
def running() -> Iterator[Scripted]:
    """One that listens, for as long as the block lasts."""
    script = Scripted()
    server = uvicorn.Server(uvicorn.Config(application(script), port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
        script.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield script
    finally:
        server.should_exit = True
        thread.join()
