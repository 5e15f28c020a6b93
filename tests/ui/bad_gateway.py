"""A gateway that behaves badly, each path in its own way: what the real one cannot be made to do at will."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse

app = FastAPI()
CHUNK = {"choices": [{"delta": {"content": "a red "}}], "fedtailor": {"client": "amy", "version": "1", "base": "2"}}


@app.post("/v1/login")
async def login(request: Request) -> object:
    return {
        "html": HTMLResponse("<h1>Bad Gateway</h1>", 502),
        "marked": JSONResponse({"error": {"message": "The key <b>marked</b> is unknown."}}, 401),
        "nothing": JSONResponse({}),
        "text": HTMLResponse("welcome"),
    }[(await request.json())["key"]]


@app.get("/v1/clients/{client}")
async def describe(client: str) -> object:
    await asyncio.sleep(2)
    return {"id": client}


@app.post("/v1/chat/completions")
async def chat(request: Request) -> StreamingResponse:
    ending = (await request.json())["model"]

    async def stream() -> AsyncIterator[str]:
        yield f"data: {json.dumps(CHUNK)}\n\n"
        if ending == "error":
            yield f"data: {json.dumps({'error': {'message': 'The engine stopped; try again in a moment.'}})}\n\n"
        elif ending == "broken":
            raise RuntimeError("the connection is cut here")
        elif ending == "garbage":
            yield "data: {half\n\n"
        else:
            yield ": a comment\n\ndata: [DONE]\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


@contextmanager
def running() -> Iterator[str]:
    """Its URL, for as long as the block lasts."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
