"""Numbers for Prometheus. Labels are bounded: the store's own clients, a dozen routes, the statuses that are used."""

import time
from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_CLIENTS = 200  # more clients than these share the label "other"


class Metrics:
    """One gateway's counters, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._clients: set[str] = set()
        self._requests = Counter(
            "fedtailor_requests", "Requests answered", ["route", "client", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "fedtailor_request_seconds", "Seconds until the answer began", ["route"], registry=self._registry
        )
        self._batches = Histogram(
            "fedtailor_encoder_batch_size",
            "Images encoded together",
            ["encoder"],
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self._registry,
        )
        self._soft_tokens = Histogram(
            "fedtailor_soft_token_seconds",
            "Seconds that a batch took with which an image got its features or its connector's soft tokens",
            ["part"],
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
            registry=self._registry,
        )
        self._connector_reads = Counter(
            "fedtailor_connector_reads", "Connectors read from their versions' folders", registry=self._registry
        )
        self._connector_evictions = Counter(
            "fedtailor_connector_evictions", "Connectors given up for others to fit in", registry=self._registry
        )
        self._connector_bytes = Gauge(
            "fedtailor_connector_bytes", "Bytes of the connectors in memory", registry=self._registry
        )
        self._engine_up = Gauge("fedtailor_engine_up", "1 while the engine is up", registry=self._registry)
        self._engine_starts = Gauge("fedtailor_engine_starts", "Starts of the engine so far", registry=self._registry)
        self._refused = Gauge("fedtailor_refused_versions", "Versions refused at present", registry=self._registry)

    def observe(self, route: str, client: str | None, status: int, seconds: float) -> None:
        """Counts one answer. ``client`` is one that was found to exist, or None."""
        self._requests.labels(route, self._label(client), str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def encoded(self, encoder: str, images: int) -> None:
        """Counts one batch of an encoder, of whatever clients' images; ``encoder`` is the family it serves."""
        self._batches.labels(encoder).observe(images)

    def soft_tokens(self, part: Literal["features", "connectors"], images: int, seconds: float) -> None:
        """Counts for each of the images the seconds that their shared batch spent on that part."""
        for _ in range(images):
            self._soft_tokens.labels(part).observe(seconds)

    def connector_read(self) -> None:
        """Counts one connector read from disk."""
        self._connector_reads.inc()

    def connector_evicted(self) -> None:
        """Counts one connector given up for others."""
        self._connector_evictions.inc()

    def connector_memory(self, nbytes: Callable[[], float]) -> None:
        """Has ``nbytes`` asked, whenever numbers are read, how many bytes of connectors are in memory."""
        self._connector_bytes.set_function(nbytes)

    def render(self, engine_up: bool, engine_starts: int, refused: int) -> bytes:
        """The text that Prometheus reads."""
        self._engine_up.set(engine_up)
        self._engine_starts.set(engine_starts)
        self._refused.set(refused)
        return generate_latest(self._registry)

    def _label(self, client: str | None) -> str:
        if client is None:
            return ""
        if len(self._clients) < MAX_CLIENTS:
            self._clients.add(client)
        return client if client in self._clients else "other"


class Observed:
    """Middleware: counts every answer under its route's own path, so that no label comes from the outside."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began = time.perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none")
                client = scope.get("state", {}).get("client")
                self._metrics.observe(route, client, message["status"], time.perf_counter() - began)
            await send(message)

        return await self._app(scope, receive, observed)
