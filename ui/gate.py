"""What stands between the network and Gradio: whose request it is, which few routes there are, how much each may send.

Gradio knows a session by the name a browser makes up for its tab, and serves whoever says that name. Here every browser
has a secret of its own in a cookie, and Gradio is told ``secret.name``: who lacks the cookie speaks of another tab.
"""

import asyncio
import json
import re
import secrets
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.session import Sessions

COOKIE = "fedtailor"
SECRET = re.compile(r"[\w-]{43}")  # 32 random bytes, URL-safe
TAB = re.compile(r"[\w-]{1,64}")
LARGEST_JSON = 64 << 10  # bytes; the longest question is 24,000 where every letter is written as an escape
SENDING_S = 10.0  # for a JSON body
STRANGERS = 256  # requests of people who are not logged in, at once
STRANGER_S = 90.0  # longest answer to one of them: a log-in waits 60 s for the gateway
STRANGERS_WAITING = 64  # events in Gradio's queue beyond which no stranger's is added; it holds 256
A_TAB = 64  # events of one tab that it has not fetched the end of
BUSY = 128  # events in Gradio's queue beyond which a tab may have only so many
A_TAB_WHEN_BUSY = 4  # more than the page itself ever has

READ = re.compile(  # all that the page and Gradio's Python client get, but for a tab's events and uploads
    r"/|/config|/gradio_api/(info|app_id)|(/gradio_api)?/theme\.css|/favicon\.ico|/manifest\.json|/robots\.txt"
    r"|/(assets|static|svelte)/.+"
)
EVENTS, JOIN, CANCEL = "/gradio_api/queue/data", "/gradio_api/queue/join", "/gradio_api/cancel"
UPLOAD, FILE = "/gradio_api/upload", "/gradio_api/file="


class Gate:
    """Middleware over the page. ``pending`` gives a tab's unfetched events, ``waiting`` all that wait for a worker."""

    def __init__(
        self, app: ASGIApp, sessions: Sessions, pending: Callable[[str], int], waiting: Callable[[], int]
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._pending = pending
        self._waiting = waiting
        self._strangers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        secret = _secret(scope)
        browser = f"{secret or secrets.token_urlsafe(32)}."
        scope.setdefault("state", {})["sessions"] = self._sessions.of_browser(browser)
        if not secret and scope["path"] in ("/", "/config"):
            send = _introduced(send, browser[:-1], secure=scope["scheme"] == "https")
        try:
            if scope["state"]["sessions"]:
                await self._route(scope, receive, send, browser)
            else:
                await self._stranger(scope, receive, send, browser)
        except _RefusedError as refused:
            headers = {"Connection": "close"} if refused.closes else {}
            await PlainTextResponse(refused.sentence, refused.status, headers)(scope, receive, send)

    async def _stranger(self, scope: Scope, receive: Receive, send: Send, browser: str) -> None:
        if self._strangers >= STRANGERS:
            raise _RefusedError(503, "Too many people are at the door; try again in a minute.")
        self._strangers += 1
        try:
            async with asyncio.timeout(STRANGER_S):
                await self._route(scope, receive, send, browser)
        except TimeoutError:
            return
        finally:
            self._strangers -= 1

    async def _route(self, scope: Scope, receive: Receive, send: Send, browser: str) -> None:
        method, path = scope["method"], scope["path"]
        if method in ("GET", "HEAD") and READ.fullmatch(path):
            await self._app({**scope, "query_string": b""}, receive, send)
        elif method == "GET" and path == EVENTS:
            given = {name: values[0] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}
            tab = str(_of_browser(given, browser)["session_hash"])
            if not self._pending(tab):
                raise _RefusedError(404, "Nothing is under way here.")
            await self._app({**scope, "query_string": urlencode({"session_hash": tab}).encode()}, receive, send)
        elif method == "POST" and path in (JOIN, CANCEL):
            body = _of_browser(await _read(scope, receive), browser)
            if path == JOIN:
                self._admit(str(body["session_hash"]))
            await self._app(*_replaced(scope, receive, json.dumps(body).encode()), send)
        elif (method, path) == ("POST", UPLOAD) or (method == "GET" and path.startswith(FILE)):
            if not scope["state"]["sessions"]:
                raise _RefusedError(401, "Log in with your key first.", closes=True)
            await self._app(scope, receive, send)
        else:
            raise _RefusedError(404, "There is nothing here.", closes=method != "GET")

    def _admit(self, tab: str) -> None:
        if tab not in self._sessions and self._waiting() >= STRANGERS_WAITING:
            raise _RefusedError(503, "Too many people are at the door; try again in a minute.")
        if self._pending(tab) >= (A_TAB if self._waiting() < BUSY else A_TAB_WHEN_BUSY):
            raise _RefusedError(429, "This page asks for more than it fetches; load it anew.")


def _secret(scope: Scope) -> str | None:
    """The browser's secret, where it sends one that can be of this page's making."""
    for name, value in scope["headers"]:
        if name == b"cookie" and (found := re.search(rf"(?:^|;\s*){COOKIE}=([^;\s]+)", value.decode("latin-1"))):
            return found[1] if SECRET.fullmatch(found[1]) else None
    return None


def _introduced(send: Send, secret: str, secure: bool) -> Send:
    """``send``, which gives the browser its secret along with the answer."""
    cookie = f"{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Strict" + "; Secure" * secure

    async def introduced(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.append("Set-Cookie", cookie)
            headers["Cache-Control"] = "no-store"
        await send(message)

    return introduced


def _of_browser(given: object, browser: str) -> dict[str, object]:
    """The fields with the tab's name put behind the browser's."""
    tab = given.get("session_hash") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(tab, str) or not TAB.fullmatch(tab):
        raise _RefusedError(400, "session_hash: up to 64 letters, digits, _ and - are allowed.")
    return given | {"session_hash": browser + tab}


async def _read(scope: Scope, receive: Receive) -> object:
    """The JSON of a body that is small and comes in time."""
    body = b""
    try:
        async with asyncio.timeout(SENDING_S):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _RefusedError(400, "body: it broke off.", closes=True)
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > LARGEST_JSON:
                    raise _RefusedError(413, f"body: at most {LARGEST_JSON} bytes are read.", closes=True)
        return json.loads(body)
    except TimeoutError as error:
        raise _RefusedError(408, f"body: it did not come within {SENDING_S:.0f} seconds.", closes=True) from error
    except (ValueError, RecursionError) as error:
        raise _RefusedError(400, "body: it is not JSON.") from error


def _replaced(scope: Scope, receive: Receive, body: bytes) -> tuple[Scope, Receive]:
    """The request with another body, which has been read already."""
    headers = [(name, value) for name, value in scope["headers"] if name not in (b"content-length", b"content-type")]
    headers += [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return {**scope, "headers": headers}, replayed


class _RefusedError(Exception):
    def __init__(self, status: int, sentence: str, closes: bool = False) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.closes = status, sentence, closes
