"""Numbers for Prometheus. Labels are bounded: the store's own clients, a dozen routes, the statuses that are used."""

import time

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
