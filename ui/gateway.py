"""The gateway as this page uses it: four calls over HTTP, each with a person's key, every failure a sentence."""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

T = TypeVar("T")

BROKE_OFF = "The answer broke off because the model stopped; it is being started again: ask again in a minute."
UNAVAILABLE = "The model cannot answer at the moment; try again in a minute."


class GatewayError(Exception):
    """Why the gateway gave no answer; the message is one sentence fit for a person."""


class KeyRefusedError(GatewayError):
    """The gateway does not know the key, or not any more."""


@dataclass(frozen=True)
class Described:
    """A client as its person may know it: which version answers, by family (mllm, clip)."""

    id: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Piece:
    """The answer so far, and which client, version and base it comes from."""

    text: str
    source: dict[str, str]


@dataclass(frozen=True)
class Classified:
    """Classes with their probabilities, the most probable first, and where they come from.

    ``experts``: how much each of several prompts weighed in the first class; empty where the model has but one.
    """

    classes: list[tuple[str, float]]
    experts: list[tuple[str, float]]
    source: dict[str, str]


@dataclass(frozen=True)
class Gateway:
    """Speaks to the gateway at ``url``; ``timeout_s`` bounds the wait for each piece of an answer."""

    url: str
    timeout_s: float
    _tls: ssl.SSLContext = field(default_factory=ssl.create_default_context, repr=False)  # slow to make, so made once

    async def login(self, key: str) -> list[str]:
        """The clients this key may use, sorted."""
        return await self._read(
            "POST", "/v1/login", None, {"key": key}, lambda found: sorted(map(str, found["clients"]))
        )

    async def describe(self, key: str, client: str) -> Described:
        """What answers for the client now."""
        path = f"/v1/clients/{client}"

        def read(found: Any) -> Described:
            answering = {family: one["answering"] for family, one in found["families"].items()}
            return Described(client, {family: version for family, version in answering.items() if version})

        return await self._read("GET", path, key, None, read)

    async def ask(self, key: str, model: str, question: str, png: bytes | None) -> AsyncIterator[Piece]:
        """The answer as it grows, one piece for every chunk the gateway sends."""
        content: list[dict[str, Any]] = [{"type": "text", "text": question}]
        if png is not None:
            content.insert(0, {"type": "image_url", "image_url": {"url": data_url(png)}})
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": content}]}
        text = ""
        async with self._sent("POST", "/v1/chat/completions", key, body) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                chunk = json.loads(line.removeprefix("data: "))
                if "error" in chunk:  # whatever it says is the engine's, and for its operator
                    raise GatewayError(BROKE_OFF)
                for choice in chunk["choices"]:
                    text += choice["delta"].get("content") or ""
                yield Piece(text, chunk.get("fedtailor", {}))

    async def classify(self, key: str, model: str, png: bytes, top_k: int) -> Classified:
        """The ``top_k`` most probable classes of the picture."""
        body = {"model": model, "image": data_url(png), "top_k": top_k}

        def read(found: Any) -> Classified:
            classes = [(one["class_name"], float(one["probability"])) for one in found["top"]]
            experts = [(one["id"], float(one["weight"])) for one in found.get("experts") or ()]
            return Classified(classes, experts, found["fedtailor"])

        return await self._read("POST", "/v1/classify", key, body, read)

    async def _read(self, method: str, path: str, key: str | None, body: object, read: Callable[[Any], T]) -> T:
        """What ``read`` makes of the JSON answer, which it may find to be of another shape than it should be."""
        async with self._sent(method, path, key, body) as response:
            return read(json.loads(await response.aread()))

    @asynccontextmanager
    async def _sent(self, method: str, path: str, key: str | None, body: object) -> AsyncIterator[httpx.Response]:
        """An open response of status 2xx; everything that can go wrong on the way is a GatewayError."""
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        try:
            async with (
                httpx.AsyncClient(base_url=self.url, timeout=self.timeout_s, verify=self._tls) as client,
                client.stream(method, path, headers=headers, json=body) as response,
            ):
                if not response.is_success:
                    raise _refusal(response.status_code, await response.aread())
                yield response
        except httpx.TimeoutException as error:
            raise GatewayError(f"The gateway did not answer within {self.timeout_s:.0f} seconds.") from error
        except httpx.HTTPError as error:
            raise GatewayError("The gateway cannot be reached; try again in a moment.") from error
        except (ValueError, KeyError, TypeError) as error:
            raise GatewayError("The gateway answered something this page does not understand.") from error


def data_url(png: bytes) -> str:
    """The picture as the gateway takes it."""
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _refusal(status: int, body: bytes) -> GatewayError:
    """What is wrong with a request the gateway knows best; what is wrong behind it is no matter of the person's."""
    if status >= 500:
        return GatewayError(UNAVAILABLE)
    try:
        message = _message(json.loads(body))
    except ValueError:
        message = None
    kind = KeyRefusedError if status == 401 else GatewayError
    return kind(message or f"The gateway refused with status {status}.")


def _message(answer: object) -> str | None:
    """The sentence of an OpenAI-shaped error, or None where there is none."""
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) and message else None
