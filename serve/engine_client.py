"""Talking to the engine: adapters in and out, answers whole or streamed."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from serve.errors import EngineUnreachableError, GatewayError, invalid, unavailable
from serve.sentinel import check_finite

PARAMETER = re.compile(r" \(parameter=.*\)$", re.DOTALL)  # vLLM's name for a field, which is seldom the user's


class EngineClient:
    """HTTP over the engine's private socket. Every method raises EngineUnreachableError where nobody answers there."""

    def __init__(self, socket: Path, key: str, answer_timeout_s: float, sentinel: int) -> None:
        self._sentinel = sentinel
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket), limits=httpx.Limits(max_connections=None)),
            base_url="http://engine",
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(30, read=answer_timeout_s),
        )

    async def close(self) -> None:
        """Closes every connection."""
        await self._http.aclose()

    async def healthy(self, timeout_s: float) -> bool:
        """Whether the engine says that it works, within ``timeout_s`` seconds."""
        try:
            return (await self._http.get("/health", timeout=timeout_s)).status_code == 200
        except httpx.HTTPError:
            return False

    async def models(self) -> set[str]:
        """Names the engine answers to, adapters among them."""
        answer = await self._request("GET", "/v1/models")
        return {model["id"] for model in answer["data"]}

    async def load(self, name: str, folder: Path) -> None:
        """Loads the adapter in ``folder`` under a name that never meant other bytes (the engine caches by name)."""
        await self._request("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    async def unload(self, name: str) -> None:
        """Forgets the adapter of that name."""
        await self._request("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """The whole answer to a chat completion request in vLLM's form; NotFiniteError where its numbers are not."""
        answer: dict[str, Any] = await self._request("POST", "/v1/chat/completions", self._stopping(body))
        check_finite(body["model"], answer, self._sentinel)
        return answer

    async def complete(self, model: str, tokens: Sequence[int], salt: str) -> None:
        """Has the model read these tokens and say one more; nothing cached under another ``salt`` is used.

        NotFiniteError where one of its numbers is not finite.
        """
        body = self._stopping({"model": model, "prompt": list(tokens), "max_tokens": 1, "cache_salt": salt})
        check_finite(model, await self._request("POST", "/v1/completions", body), self._sentinel)

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The answer chunk by chunk. Errors before the first chunk are raised like those of ``chat``."""
        request = self._http.build_request("POST", "/v1/chat/completions", json=self._stopping(body) | {"stream": True})
        try:
            response = await self._http.send(request, stream=True)
            try:
                if response.status_code != 200:
                    await response.aread()
                    raise _refusal(response)
                async for line in response.aiter_lines():
                    data = line.removeprefix("data: ")
                    if data and data != line and data != "[DONE]":
                        chunk = _chunk(data)
                        check_finite(body["model"], chunk, self._sentinel)
                        yield chunk
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise EngineUnreachableError from error

    def _stopping(self, body: dict[str, Any]) -> dict[str, Any]:
        return body | {"stop_token_ids": [self._sentinel]}

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            response = await self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise EngineUnreachableError from error
        if response.status_code != 200:
            raise _refusal(response)
        return response.json() if response.headers.get("content-type", "").startswith("application/json") else None


def _chunk(data: str) -> dict[str, Any]:
    chunk: dict[str, Any] = json.loads(data)
    if "error" in chunk:
        raise unavailable(f"the engine gave up in the middle of the answer: {_message(chunk)}")
    return chunk


def _refusal(response: httpx.Response) -> GatewayError:
    try:
        message = _message(response.json())
    except ValueError:
        message = f"status {response.status_code}"
    if response.status_code == 400:
        return invalid(PARAMETER.sub("", message))
    return unavailable(f"the engine could not do this: {message}")


def _message(body: Any) -> str:
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error) if isinstance(error, dict) else error)
