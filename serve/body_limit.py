"""Refuses bodies that are too large before anything parses them."""

import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import GatewayError


class BodyLimit:
    """Middleware: answers 413 once a request's body is longer than ``max_bytes``, announced or not."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > self._max_bytes:
            return await self._refuse(send)
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise _TooLargeError
            return message

        try:
            await self._app(scope, counted, send)
        except _TooLargeError:
            await self._refuse(send)

    async def _refuse(self, send: Send) -> None:
        error = GatewayError(413, f"the request's body is larger than the {self._max_bytes} bytes that are read")
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(error.body()).encode()})


class _TooLargeError(Exception):
    pass
