"""Refuses bodies that are too large before anything parses them; whoever has shown no key yet may say very little."""

import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import GatewayError

WITHOUT_A_KEY = 4096  # bytes: a key, in JSON


class BodyLimit:
    """Middleware: answers 413 once a request's body is longer than ``max_bytes``, announced or not.

    A body that is read before ``scope["state"]`` has the ``owner`` of a key may have ``WITHOUT_A_KEY`` bytes.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        announced = _announced(scope)
        if announced > self._max_bytes:
            return await _refuse(send, self._max_bytes)
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            limit = self._max_bytes if scope.get("state", {}).get("owner") else min(WITHOUT_A_KEY, self._max_bytes)
            if announced > limit:
                raise _TooLargeError(limit)
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _TooLargeError(limit)
            return message

        try:
            await self._app(scope, counted, send)
        except _TooLargeError as error:
            await _refuse(send, error.limit)


def _announced(scope: Scope) -> float:
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return int(length) if length.isdigit() and len(length) < 20 else float("inf")


async def _refuse(send: Send, limit: int) -> None:
    error = GatewayError(413, f"the request's body is larger than the {limit} bytes that are read")
    await send({"type": "http.response.start", "status": 413, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(error.body()).encode()})


class _TooLargeError(Exception):
    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit
