"""The two sides that are asked: the gateway with everything, and a bare engine that gets the same LoRAs ready-made."""

import asyncio
import base64
import io
import itertools
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import torch
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from safetensors.torch import load_file

from adapters_store.bases.frozen import export_base
from adapters_store.paths import PROJECT_ROOT
from adapters_store.personal.connector import CONNECTOR, read_connector
from adapters_store.store import Store
from serve.chat.soft_tokens import engine_payload
from serve.chat.templates import Prompts
from serve.chat.vision import Vision
from serve.engine.private_folder import PrivateFolder
from serve.engine.process import Engine
from serve.http.auth import Keys
from serve.schemas import Message
from serve.settings import Settings
from serve.versions.subjects import of_base

QUESTION: Final = "Describe the image."
EXPORTS: Final = ".exports"  # in the store's folder, which ends with the study
START_S: Final = 300.0
POOL: Final = 8  # ready-made images of each client on the bare engine, whose salt makes every request a new one


class Front:
    """The gateway, asked over HTTP with a new picture every time."""

    def __init__(self, http: httpx.AsyncClient, process_id: int, answer_tokens: int) -> None:
        self.http = http
        self.process_id = process_id
        self._answer_tokens = answer_tokens
        self._random = np.random.default_rng(0)

    async def ask(self, client: str) -> int:
        """Tokens of one answer."""
        image = {"type": "image_url", "image_url": {"url": self._picture()}}
        content = [image, {"type": "text", "text": QUESTION}]
        body = {"model": client, "messages": [{"role": "user", "content": content}], "max_tokens": self._answer_tokens}
        answer = (await self.http.post("/v1/chat/completions", json=body)).raise_for_status()
        return int(answer.json()["usage"]["completion_tokens"])

    async def seconds(self) -> dict[str, float]:
        """Seconds so far that answers took, and that their features and connectors did; and how many answers."""
        text = (await self.http.get("/metrics")).raise_for_status().text
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        chat = "/v1/chat/completions"
        return {
            "features": found.get(("fedtailor_soft_token_seconds_sum", "features"), 0.0),
            "connectors": found.get(("fedtailor_soft_token_seconds_sum", "connectors"), 0.0),
            "answers": found.get(("fedtailor_request_seconds_sum", chat), 0.0),
            "count": found.get(("fedtailor_request_seconds_count", chat), 0.0),
        }

    def _picture(self) -> str:
        pixels = self._random.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(buffer := io.BytesIO(), "PNG", compress_level=1)
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


class Bare:
    """An engine of the gateway's kind, asked directly with soft tokens that are ready."""

    def __init__(self, engine: Engine, requests: Mapping[str, Sequence[dict[str, Any]]]) -> None:
        self._engine = engine
        self._requests = {client: itertools.cycle(bodies) for client, bodies in requests.items()}
        self._asked = itertools.count()

    async def ask(self, client: str) -> int:
        """Tokens of one answer."""
        body = next(self._requests[client]) | {"cache_salt": str(next(self._asked))}
        answer = await self._engine.require_up().chat(body)
        return int(answer["usage"]["completion_tokens"])


@asynccontextmanager
async def gateway(store: Store, base: Path, clients: Sequence[str], answer_tokens: int) -> AsyncIterator[Front]:
    """A gateway over the store in a process of its own, its clients answering; it remembers no image."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"store": store.root, "base": base, "exports": store.root / EXPORTS, "clip": "none", "cache-mib": 0}
    words = [f"--{name}={value}" for name, value in (options | {"port": port}).items()]
    command = [sys.executable, "-m", "serve", "run", *words]
    process = subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.DEVNULL)
    headers = {"Authorization": f"Bearer {Keys(store.root).add([], admin=True)}"}
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as http:
            await _until(lambda: _answering(http, clients), lambda: process.poll() is None, "the gateway")
            yield Front(http, process.pid, answer_tokens)
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait)


@asynccontextmanager
async def bare_engine(store: Store, base: Path, folders: Mapping[str, Path], answer_tokens: int) -> AsyncIterator[Bare]:
    """An engine with the LoRAs in these folders, by ``client@version``, and requests with what their connectors say."""
    settings = Settings(base=base, clip=None, exports=store.root / EXPORTS)
    exported = await asyncio.to_thread(export_base, base, settings.exports, settings.nf4, settings.dtype)
    private = PrivateFolder()
    engine = Engine(exported, private.path, settings)
    engine.start()
    try:
        prompt = await _prompt(base)
        requests = {name.split("@")[0]: _requests(base, name, folders[name], prompt, answer_tokens) for name in folders}

        async def up() -> bool:
            return engine.state == "up"

        await _until(up, lambda: engine.state != "down", "the engine")
        for name, folder in folders.items():
            await engine.require_up().load(name, folder)
        yield Bare(engine, requests)
    finally:
        await engine.stop()
        private.remove()


async def _prompt(base: Path) -> str:
    content = [{"type": "image_url", "image_url": {"url": ""}}, {"type": "text", "text": QUESTION}]
    prompts = Prompts(base)
    try:
        said = Message.model_validate({"role": "user", "content": content})
        return await prompts.render(of_base(base, "", base).prompt_template, [said])
    finally:
        await prompts.close()


@torch.inference_mode()
def _requests(base: Path, name: str, folder: Path, prompt: str, answer_tokens: int) -> list[dict[str, Any]]:
    vision, connector = Vision(base, torch.device("cpu")), read_connector(load_file(folder / CONNECTOR))
    pixels = torch.randn(POOL, 3, vision.side, vision.side, generator=torch.Generator().manual_seed(0))
    text = {"type": "text", "text": prompt}
    bodies = []
    for soft in connector(vision.features(pixels)):
        image = {"type": "image_embeds", "image_embeds": engine_payload(soft, vision.width, vision.limit)}
        body = {"model": name, "messages": [{"role": "user", "content": [image, text]}], "temperature": 0}
        bodies.append(body | {"max_tokens": answer_tokens, "add_special_tokens": False})
    return bodies


async def _answering(http: httpx.AsyncClient, clients: Sequence[str]) -> bool:
    try:
        found = [await http.get(f"/v1/clients/{client}") for client in clients]
        ready = await http.get("/readyz")
    except httpx.HTTPError:
        return False
    return all(answer.status_code == 200 for answer in (ready, *found)) and all(a.json()["answering"] for a in found)


async def _until(done: Callable[[], Awaitable[bool]], alive: Callable[[], bool], who: str) -> None:
    deadline = time.monotonic() + START_S
    while not await done():
        if not alive() or time.monotonic() > deadline:
            raise RuntimeError(f"{who} did not start within {START_S:.0f} s")
        await asyncio.sleep(0.2)
