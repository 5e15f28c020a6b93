"""The two routes of a picture: in, from somebody who is logged in, and back to the same browser as a preview."""

from collections import Counter
from collections.abc import AsyncGenerator

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from ui.gate import FILE, UPLOAD
from ui.session import Session
from ui.uploads import UNKNOWN, Uploads

ENVELOPE = 16 << 10  # bytes of a form around its file
AT_ONCE = 16  # uploads being received
A_KEY_AT_ONCE = 4
SHOWN = {"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"}  # what no browser runs scripts from
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Receiving:
    """Takes one picture a request, of at most ``max_bytes``; nothing of it is written to a disk."""

    def __init__(self, uploads: Uploads, max_bytes: int) -> None:
        self._uploads = uploads
        self._max_bytes = max_bytes
        self._receiving: Counter[str] = Counter()
        self.routes: list[BaseRoute] = [
            Route(UPLOAD, self.receive, methods=["POST"]),
            Route(FILE + "{name:path}", self.show, methods=["GET"]),
        ]

    async def receive(self, request: Request) -> Response:
        """The names of what was uploaded, in the shape in which Gradio's clients expect them."""
        owners: list[Session] = request.state.sessions
        key = owners[-1].key
        if self._receiving[key] >= A_KEY_AT_ONCE or self._receiving.total() >= AT_ONCE:
            return _refused(429, "Too many pictures are on their way; try again in a moment.")
        self._receiving[key] += 1
        try:
            file = await self._file(request)
            content, media_type = await file.read(), file.content_type or ""
            await file.close()
        except _TooLargeError:
            return _refused(413, f"That file is larger than {self._max_bytes >> 20} megabytes.")
        except (MultiPartException, KeyError, ClientDisconnect):
            return _refused(400, "files: one file in a multipart form is allowed.")
        finally:
            self._receiving -= Counter([key])
        return JSONResponse([self._uploads.keep(owners, content, media_type)])

    async def show(self, request: Request) -> Response:
        """The picture as it came, for the browser that sent it."""
        upload = self._uploads.seen(request.state.sessions, request.path_params["name"])
        if upload is None:
            return PlainTextResponse(UNKNOWN, 404)
        media_type = upload.media_type if upload.media_type in SHOWN else "application/octet-stream"
        return Response(upload.content, media_type=media_type, headers=HEADERS)

    async def _file(self, request: Request) -> UploadFile:
        if int(request.headers.get("content-length", 0)) > self._max_bytes + ENVELOPE:
            raise _TooLargeError
        parser = _InMemory(request.headers, self._counted(request), max_files=1, max_fields=0)
        file = (await parser.parse())["files"]
        if not isinstance(file, UploadFile):
            raise KeyError("files")
        if (file.size or 0) > self._max_bytes:
            raise _TooLargeError
        return file

    async def _counted(self, request: Request) -> AsyncGenerator[bytes, None]:
        seen = 0
        async for chunk in request.stream():
            seen += len(chunk)
            if seen > self._max_bytes + ENVELOPE:
                raise _TooLargeError
            yield chunk


class _InMemory(MultiPartParser):
    spool_max_size = 1 << 40  # bytes; more than ``_counted`` lets through


class _TooLargeError(Exception):
    pass


def _refused(status: int, sentence: str) -> Response:
    return PlainTextResponse(sentence, status, {"Connection": "close"})
