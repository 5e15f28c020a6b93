"""A real gateway with its engine, for as long as a block lasts."""

import base64
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from PIL import Image

from adapters_store.paths import PROJECT_ROOT
from adapters_store.store import Store
from serve.http.auth import Keys

START_TIMEOUT_S = 180.0  # two busy cores; alone it takes about twenty-five seconds


@dataclass
class LiveGateway:
    """Where it listens, how to get in, and how to hurt it."""

    url: str
    store: Store
    admin_key: str
    process: subprocess.Popen[bytes]
    log_file: Path
    _keys: dict[tuple[str, ...], str] = field(default_factory=dict)

    def key(self, *clients: str) -> str:
        """A key that opens these clients."""
        if clients not in self._keys:
            self._keys[clients] = Keys(self.store.root).add(list(clients))
        return self._keys[clients]

    def http(self, key: str | None = None) -> httpx.Client:
        """A client that sends the key, the admin's unless another is given; an empty one sends none."""
        key = self.admin_key if key is None else key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120)

    def ask(self, model: str, question: str, image: np.ndarray | None = None, **fields: Any) -> dict[str, Any]:
        """The whole answer to one question; ``fields`` go into the request."""
        content: list[dict[str, Any]] = [{"type": "text", "text": question}]
        if image is not None:
            content.insert(0, {"type": "image_url", "image_url": {"url": data_url(image)}})
        body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 16} | fields
        with self.http() as http:
            answer = http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Returns once the gateway is ready; RuntimeError with its log where it is not in time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"the gateway did not become ready:\n{self.log()[-4000:]}")

    def wait_for(self, model: str, version: str, timeout_s: float = 30) -> float:
        """Seconds until ``model`` is answered by that version, in its family."""
        began = time.monotonic()
        with self.http() as http:
            while time.monotonic() < began + timeout_s:
                families = http.get(f"/v1/clients/{model}").json().get("families", {})
                if version in [family["answering"] for family in families.values()]:
                    return time.monotonic() - began
                time.sleep(0.02)
        raise RuntimeError(f"{model} is not answered by {version}:\n{self.log()[-4000:]}")

    def guard(self) -> psutil.Process:
        """The process that ends the engine's with the gateway."""
        children = psutil.Process(self.process.pid).children()
        return next(process for process in children if "guard.py" in " ".join(command(process)))

    def engine_processes(self) -> list[psutil.Process]:
        """Every process of the engine's tree but its guard."""
        return self.guard().children(recursive=True)

    def stop_engine(self) -> None:
        """Kills the engine without a warning. The gateway starts it again, some twenty seconds later."""
        for process in self.engine_processes():
            with_no_error(process.kill)

    def log(self) -> str:
        """What the gateway wrote so far."""
        return self.log_file.read_text(errors="replace")


@contextmanager
def running_gateway(store_root: str | Path, **options: Any) -> Iterator[LiveGateway]:
    """A ready gateway over that store, in a process of its own; ``options`` are those of ``python -m serve``."""
    with starting_gateway(store_root, **options) as gateway:
        gateway.wait_ready()
        yield gateway


@contextmanager
def starting_gateway(store_root: str | Path, **options: Any) -> Iterator[LiveGateway]:
    """As ``running_gateway``, without waiting for anything."""
    store = Store(store_root)
    admin_key = Keys(store.root).add([], admin=True)
    port = free_port()
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "serve", "run", "--store", str(store.root), "--port", str(port), *words]
    with tempfile.TemporaryDirectory() as folder:
        log_file = Path(folder) / "gateway.log"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=PROJECT_ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"HF_HUB_OFFLINE": "1"},
            )
        try:
            yield LiveGateway(f"http://127.0.0.1:{port}", store, admin_key, process, log_file)
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Asks the gateway to stop, and kills it where it does not; its guard then ends the engine."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def data_url(image: np.ndarray) -> str:
    """The picture (H, W, 3) uint8 as a PNG data URL."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()


def png(image: np.ndarray) -> bytes:
    """The picture (H, W, 3) uint8 as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def noise(seed: int, side: int = 64) -> np.ndarray:
    """A picture of random pixels, (side, side, 3) uint8."""
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def command(process: psutil.Process) -> list[str]:
    """Its command line; empty where it is gone."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def with_no_error(act: Any) -> None:
    """Does it, unless the process is gone already."""
    try:
        act()
    except psutil.NoSuchProcess:
        return
