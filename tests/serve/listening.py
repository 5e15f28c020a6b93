"""A real server on the loopback address, in a thread of the test's own process, for as long as a block lasts."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tests.serve.live import free_port


@contextmanager
def listening(app: ASGIApp, **options: Any) -> Iterator[int]:
    """The port of a server of that application; ``options`` are uvicorn's."""
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", timeout_graceful_shutdown=1, **options)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join()
