"""Ends the work on a request whose sender has gone: nobody else should wait for an answer that nobody reads."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Disconnects:
    """Middleware: cancels the request's handling, streamed answers too, once its connection is closed.

    It listens from the body's end on; before it, whoever reads the body finds out.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read, answered = asyncio.Event(), asyncio.Event()

        async def watched() -> Message:
            if read.is_set():
                await asyncio.Event().wait()  # this listens already, and cancels whoever waits here
            message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                read.set()
            return message

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                answered.set()
            await send(message)

        async def gone() -> None:
            await read.wait()
            while (await receive())["type"] != "http.disconnect":
                pass

        work = asyncio.ensure_future(self._app(scope, watched, noted))
        left = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not answered.is_set():
                work.cancel()
            await asyncio.wait({work})
        finally:
            left.cancel()
            work.cancel()
        if not work.cancelled():
            work.result()
