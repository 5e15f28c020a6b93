"""The routes. What they do is elsewhere."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from serve.auth import Access
from serve.body_limit import BodyLimit
from serve.clients import describe
from serve.errors import GatewayError
from serve.gateway import Gateway
from serve.metrics import Observed
from serve.reading import read_classification, read_json
from serve.refusals import install_handlers
from serve.residents import Resident
from serve.schemas import ChatRequest, LoginRequest
from serve.settings import Settings
from serve.subjects import Subject


def create_app(settings: Settings) -> FastAPI:
    """The gateway as an ASGI application; its engine lives as long as the application does."""
    gateway = Gateway(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            await gateway.start()
            yield
        finally:
            await gateway.stop()

    app = FastAPI(title="FedTailor", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(Observed, metrics=gateway.metrics)
    install_handlers(app)
    _add_answers(app, gateway)
    _add_knowledge(app, gateway)
    _add_operations(app, gateway)
    return app


def _add_answers(app: FastAPI, gateway: Gateway) -> None:
    access_of = _access_dependency(gateway)

    @app.post("/v1/chat/completions")
    async def chat_completions(request: Request, access: Annotated[Access, Depends(access_of)]) -> Response:
        asked = await read_json(request, ChatRequest)
        resident = await gateway.lease(access, asked.model)
        subject = resident.subject
        request.state.client = subject.client
        headers = _identity_headers(subject)
        try:
            chat = gateway.chat_with(subject)
            if asked.stream:
                chunks = chat.stream(asked, subject, access.owner)
                first = await anext(chunks)  # what goes wrong before it is still an answer with a status
                events = _events(first, chunks, resident.lease())
                return StreamingResponse(events, media_type="text/event-stream", headers=headers)
            return JSONResponse(await chat.answer(asked, subject, access.owner), headers=headers)
        finally:
            resident.release()

    @app.post("/v1/classify")
    async def classify(request: Request, access: Annotated[Access, Depends(access_of)]) -> Response:
        asked, picture = await read_classification(request, gateway.settings)
        resident = await gateway.lease(access, asked.model)
        try:
            subject = resident.subject
            request.state.client = subject.client
            classifier, identity = gateway.classify_with(subject), dict[str, Any](subject.identity)
            if asked.classes is None:
                found = await classifier.answer(subject, picture, access.owner)
            else:
                found = await classifier.zero_shot(asked.classes, picture, access.owner, subject)
                identity["zero_shot"] = True
        finally:
            resident.release()
        body = {"object": "classification", "model": subject.name, **found.body(asked.top_k), "fedtailor": identity}
        return JSONResponse(body, headers=_identity_headers(subject))


def _add_knowledge(app: FastAPI, gateway: Gateway) -> None:
    access_of = _access_dependency(gateway)

    @app.get("/v1/models")
    async def models(access: Annotated[Access, Depends(access_of)]) -> dict[str, Any]:
        return {"object": "list", "data": await asyncio.to_thread(gateway.models, access)}

    @app.get("/v1/models/{model}")
    async def model(model: str, access: Annotated[Access, Depends(access_of)]) -> dict[str, Any]:
        found = [entry for entry in await asyncio.to_thread(gateway.models, access) if entry["id"] == model]
        if not found:
            raise GatewayError(404, f"model {model!r} is not among those this key opens", "model")
        return found[0]

    @app.get("/v1/clients/{client}")
    async def client(client: str, access: Annotated[Access, Depends(access_of)]) -> dict[str, Any]:
        gateway.require_known(client)
        if not access.allows(client):
            raise GatewayError(403, f"this key does not open client {client!r}")
        return await asyncio.to_thread(describe, client, gateway.store, gateway.adapters)

    @app.post("/v1/login")
    async def login(request: Request) -> dict[str, Any]:
        asked = await read_json(request, LoginRequest)
        access = gateway.keys.access(asked.key)
        opened = gateway.store.clients() if access.admin else sorted(access.clients)
        return {"clients": [client for client in opened if client != "global"], "admin": access.admin}


def _add_operations(app: FastAPI, gateway: Gateway) -> None:
    access_of = _access_dependency(gateway)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> Response:
        engine = "none" if gateway.engine is None else gateway.engine.state
        return JSONResponse({"ready": gateway.ready, "engine": engine}, 200 if gateway.ready else 503)

    @app.get("/metrics")
    async def metrics(access: Annotated[Access, Depends(access_of)]) -> Response:
        _require_admin(access)
        engine = gateway.engine
        up, starts = (engine.state == "up", engine.starts) if engine else (False, 0)
        refused = len(gateway.adapters.refused)
        return Response(gateway.metrics.render(up, starts, refused), media_type="text/plain; version=0.0.4")

    @app.post("/v1/admin/reload")
    async def reload(access: Annotated[Access, Depends(access_of)]) -> dict[str, Any]:
        _require_admin(access)
        await gateway.adapters.sync(retry_refused=True)
        return {"ready": gateway.ready, "refused": gateway.adapters.refused}


def _access_dependency(gateway: Gateway) -> Any:
    async def access_of(request: Request) -> Access:
        return gateway.keys.authenticate(request.headers.get("authorization"))

    return access_of


def _require_admin(access: Access) -> None:
    if not access.admin:
        raise GatewayError(403, "this needs an admin key")


def _identity_headers(subject: Subject) -> dict[str, str]:
    return {f"X-FedTailor-{name.title()}": value for name, value in subject.identity.items()}


async def _events(
    first: dict[str, Any], chunks: AsyncIterator[dict[str, Any]], resident: Resident
) -> AsyncIterator[str]:
    """Server-sent events of an answer; an error that comes too late for a status is the last of them."""
    try:
        yield _event(first)
        async for chunk in chunks:
            yield _event(chunk)
        yield "data: [DONE]\n\n"
    except GatewayError as error:
        yield _event(error.body())
    finally:
        resident.release()


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
