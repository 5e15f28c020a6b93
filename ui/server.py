"""The page behind its gate on a port, until the process is told to end."""

import logging
import socket
from collections.abc import Callable, Iterator

import gradio as gr
import uvicorn
from fastapi import FastAPI

from ui.app import CSS, build
from ui.gate import Gate
from ui.gateway import Gateway
from ui.limits import HEADER_BYTES, BoundedProtocol
from ui.receiving import Receiving
from ui.session import Sessions
from ui.uploads import Uploads

FIRST_PORTS = range(7860, 7960)


def gated(gateway: Gateway, max_upload_mb: int) -> Gate:
    """The whole page as an application, with nobody logged in."""
    sessions, uploads = Sessions(), Uploads()
    page = build(gateway, sessions, uploads)
    page.protect(sessions)
    receiving = Receiving(uploads, max_upload_mb << 20)
    app = FastAPI(openapi_url=None, routes=receiving.routes)
    # Plain names of fonts are taken from the person's machine; Gradio's own themes fetch theirs.
    theme = gr.themes.Soft(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=theme,
        css=CSS,
        max_file_size=f"{max_upload_mb}mb",
        footer_links=[],
        run_history=False,  # it keeps every input in the browser, the key among them
        enable_monitoring=False,
        ssr_mode=False,
        mcp_server=False,
    )
    return Gate(app, sessions, page.pending, page.waiting)


def run(app: Gate, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serves until interrupted; tells ``announce`` its address once it listens."""
    bound = _bound(host, port)
    name = "localhost" if host == "0.0.0.0" else f"[{host.strip('[]')}]" if ":" in host.strip("[]") else host
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        h11_max_incomplete_event_size=HEADER_BYTES,
        log_level="error",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    _Server(config, lambda: announce(f"http://{name}:{bound.getsockname()[1]}")).run(sockets=[bound])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # that streams break off now is no error
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # a stream of events has no end of its own
        await super().shutdown(sockets)


def _bound(host: str, port: int) -> socket.socket:
    """A socket on that port, or for 0 on the first free one of Gradio's; SystemExit with a sentence where none is."""
    for address in _addresses(host, [port] if port else FIRST_PORTS):
        bound = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(address)
            bound.listen()
            return bound
        except OSError:
            bound.close()
    raise SystemExit(f"error: cannot listen on port {port} of {host}: is it taken?")


def _addresses(host: str, ports: list[int] | range) -> Iterator[tuple[str, int]]:
    for port in ports:
        try:
            found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        except OSError:
            return
        yield str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0]), port
