"""Talking to the engine: adapters in and out, answers whole or streamed."""

import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from serve.engine.sentinel import check_finite
from serve.errors import EngineUnreachableError, GatewayError, invalid, unavailable

log = logging.getLogger(__name__)

PARAMETER = re.compile(r" \(parameter=.*\)$", re.DOTALL)  # vLLM's name for a field, which is seldom the user's
TOLD = "This model's maximum context length is "
"""How vLLM begins what it says of a request's own length. All else that it says is for the log."""
KEPT_S = 2.0  # an idle connection; the engine's uvicorn closes one after 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE)
CLOSED = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)  # by the other side


class EngineClient:
    """HTTP over the engine's private socket. Every method raises EngineUnreachableError where nobody answers there."""

    def __init__(self, socket: Path, key: str, answer_timeout_s: float, sentinel: int) -> None:
        self._sentinel = sentinel
        self._kept = _client(socket, key, answer_timeout_s, httpx.Limits(keepalive_expiry=KEPT_S))
        self._fresh = _client(socket, key, answer_timeout_s, httpx.Limits(max_keepalive_connections=0))

    async def close(self) -> None:
        """Closes every connection."""
        await self._kept.aclose()
        await self._fresh.aclose()

    async def healthy(self, timeout_s: float) -> bool:
        """Whether the engine says that it works, within ``timeout_s`` seconds."""
        try:
            return (await self._fresh.get("/health", timeout=timeout_s)).status_code == 200
        except httpx.HTTPError:
            return False

    async def models(self) -> set[str]:
        """Names the engine answers to, adapters among them."""
        answer = await self._command("GET", "/v1/models")
        return {model["id"] for model in answer["data"]}

    async def load(self, name: str, folder: Path) -> None:
        """Loads the adapter in ``folder`` under a name that never meant other bytes (the engine caches by name)."""
        await self._command("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    async def unload(self, name: str) -> None:
        """Forgets the adapter of that name."""
        await self._command("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """The whole answer to a chat completion request in vLLM's form; NotFiniteError where its numbers are not."""
        async with self._asked("/v1/chat/completions", body) as response:
            answer: dict[str, Any] = json.loads(await response.aread())
        check_finite(body["model"], answer, self._sentinel)
        return answer

    async def complete(self, model: str, tokens: Sequence[int], salt: str) -> None:
        """Has the model read these tokens and say one more; nothing cached under another ``salt`` is used.

        NotFiniteError where one of its numbers is not finite.
        """
        body = {"model": model, "prompt": list(tokens), "max_tokens": 1, "cache_salt": salt}
        async with self._asked("/v1/completions", body) as response:
            check_finite(model, json.loads(await response.aread()), self._sentinel)

    async def stream(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """The answer chunk by chunk. Errors before the first chunk are raised like those of ``chat``."""
        async with self._asked("/v1/chat/completions", body | {"stream": True}) as response:
            async for line in response.aiter_lines():
                data = line.removeprefix("data: ")
                if data and data != line and data != "[DONE]":
                    chunk = _chunk(data)
                    check_finite(body["model"], chunk, self._sentinel)
                    yield chunk

    @asynccontextmanager
    async def _asked(self, path: str, body: dict[str, Any]) -> AsyncIterator[httpx.Response]:
        """An answer that has begun well. Leaving the block ends the engine's work on it."""
        request = self._kept.build_request("POST", path, json=body | {"stop_token_ids": [self._sentinel]})
        try:
            response = await self._sent(request)
            try:
                if response.status_code != 200:
                    await response.aread()
                    raise _refusal(response)
                yield response
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise EngineUnreachableError from error

    async def _sent(self, request: httpx.Request) -> httpx.Response:
        """The beginning of the answer; asked again, once, where the connection was closed before anything came.

        The engine may close an idle connection in the moment it is used. The second time the connection is a new one,
        so that an engine that is gone is known to be at once. An answer changes nothing: it may be asked for twice.
        """
        try:
            return await self._kept.send(request, stream=True)
        except CLOSED:
            return await self._fresh.send(request, stream=True)

    async def _command(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """What changes something is never sent twice: each time over a connection of its own, which nobody closes."""
        try:
            response = await self._fresh.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise EngineUnreachableError from error
        if response.status_code != 200:
            raise _refusal(response)
        return response.json() if response.headers.get("content-type", "").startswith("application/json") else None


def _client(socket: Path, key: str, answer_timeout_s: float, limits: httpx.Limits) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=str(socket), limits=limits),
        base_url="http://engine",
        headers={"Authorization": f"Bearer {key}"},
        timeout=httpx.Timeout(30, read=answer_timeout_s),
    )


def _chunk(data: str) -> dict[str, Any]:
    chunk: dict[str, Any] = json.loads(data)
    if "error" in chunk:
        log.error("the engine gave up in the middle of an answer: %s", _message(chunk))
        raise unavailable("the engine gave up in the middle of the answer; try again shortly")
    return chunk


def _refusal(response: httpx.Response) -> GatewayError:
    """The engine's refusal in our words; its own are told where they are about the request's length."""
    try:
        message = _message(response.json())
    except ValueError:
        message = response.text
    if response.status_code == 400 and message.startswith(TOLD):
        return invalid(PARAMETER.sub("", message))
    log.error("the engine refused with status %d: %.2000s", response.status_code, message)
    if response.status_code == 400:
        return invalid("the engine cannot do what this request asks for; the gateway's log says why")
    return unavailable("the engine could not do this; the gateway's log says why")


def _message(body: Any) -> str:
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error) if isinstance(error, dict) else error)
