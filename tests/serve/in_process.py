"""A gateway without an engine in the test's own process: enough for classification, and quick to start."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import torch

from adapters_store.store import Store
from serve.app import create_app
from serve.http.auth import Keys
from serve.settings import Settings
from tests.serve.artefacts import CLIP
from tests.serve.live import data_url


@asynccontextmanager
async def serving(store: Store, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a ready gateway, with a new administrator's key; ``options`` are settings."""
    threads = torch.get_num_threads()  # which the gateway would set to its own default for the whole process
    given = {"store": store.root, "base": None, "clip": CLIP, "torch_threads": threads, **options}
    app = create_app(Settings(**given))
    transport = httpx.ASGITransport(app)
    headers = {"Authorization": f"Bearer {Keys(store.root).add([], admin=True)}"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers) as http,
    ):
        while (await http.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.01)
        yield http


async def classify(http: httpx.AsyncClient, model: str, image: np.ndarray, **fields: Any) -> dict[str, Any]:
    """The answer about one picture, with every class in it."""
    body = {"model": model, "image": data_url(image), "top_k": 1000, **fields}
    answer = await http.post("/v1/classify", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def probabilities(answer: dict[str, Any]) -> dict[str, float]:
    """Probability by class, the most probable first."""
    return {entry["class_name"]: entry["probability"] for entry in answer["top"]}
