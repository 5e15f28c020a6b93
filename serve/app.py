"""The routes. What they do is elsewhere."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from adapters_store.versions.manifest import Family
from serve.chat.conversation import Question
from serve.classify.class_scores import ClassScores
from serve.errors import GatewayError, not_opened
from serve.gateway import Gateway
from serve.http.auth import Access
from serve.http.body_limit import BodyLimit
from serve.http.disconnects import Disconnects
from serve.http.reading import read_classification, read_json
from serve.http.refusals import install_handlers
from serve.metrics import Observed
from serve.pictures.images import Sent
from serve.schemas import ChatRequest, ClassifyRequest, LoginRequest
from serve.settings import Settings
from serve.versions.describe import describe
from serve.versions.subjects import Subject


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
    app.add_middleware(Disconnects)
    install_handlers(app)
    _add_answers(app, gateway)
    _add_knowledge(app, gateway)
    _add_operations(app, gateway)
    return app


def _add_answers(app: FastAPI, gateway: Gateway) -> None:
    access_of = _access_dependency(gateway)

    @app.post("/v1/chat/completions")
    async def chat_completions(
        request: Request, access: Annotated[Access, Depends(access_of)], held: Annotated[AsyncExitStack, Depends(_held)]
    ) -> Response:
        question = await _question(gateway, request, access, held)
        subject, chat = question.subject, gateway.chat
        await held.enter_async_context(gateway.admission.answers(access.owner, subject.client, question.answers))
        headers = _identity_headers(subject)
        if not question.stream:
            return JSONResponse(await chat.answer(question), headers=headers)
        chunks = chat.stream(question)
        held.push_async_callback(chunks.aclose)
        first = await anext(chunks)  # what goes wrong before it is still an answer with a status
        events = _events(first, chunks, lambda: gateway.require_open(_authorization(request), subject.client))
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    @app.post("/v1/classify")
    async def classify(
        request: Request, access: Annotated[Access, Depends(access_of)], held: Annotated[AsyncExitStack, Depends(_held)]
    ) -> Response:
        subject, asked, found = await _classified(gateway, request, access, held)
        identity = subject.identity | ({} if asked.classes is None else {"zero_shot": True})
        body = {"object": "classification", "model": subject.name, **found.body(asked.top_k), "fedtailor": identity}
        return JSONResponse(body, headers=_identity_headers(subject))


async def _question(gateway: Gateway, request: Request, access: Access, held: AsyncExitStack) -> Question:
    """What the request asks, and of whom; the body is gone after that, and who answers is kept for ``held``."""
    async with gateway.admission.body(access.owner, request.headers.get("content-length")):
        asked = await read_json(request, ChatRequest)
        subject = await _leased(gateway, request, access, asked.model, "mllm", held)
        return await gateway.chat.question(asked, subject, access.owner)


async def _classified(
    gateway: Gateway, request: Request, access: Access, held: AsyncExitStack
) -> tuple[Subject, ClassifyRequest, ClassScores]:
    """Who was asked, what, and what is said."""
    owner = access.owner
    async with gateway.admission.body(owner, request.headers.get("content-length")):
        asked, file = await read_classification(request)
        subject = await _leased(gateway, request, access, asked.model, "clip", held)
        classifier = gateway.classifier
        transform = classifier.transform(subject, zero_shot=asked.classes is not None)
        if file is None:
            [picture] = await gateway.decoder.of_urls(owner, [Sent(asked.image, "image", asked.window)], transform)
        else:
            picture = await gateway.decoder.of_file(owner, file, transform, "image", asked.window)
        asked = asked.model_copy(update={"image": ""})
    async with gateway.admission.answers(owner, subject.client):
        if asked.classes is None:
            return subject, asked, await classifier.answer(subject, picture, owner)
        return subject, asked, await classifier.zero_shot(asked.classes, picture, owner, subject)


async def _leased(
    gateway: Gateway, request: Request, access: Access, model: str, family: Family, held: AsyncExitStack
) -> Subject:
    loaded = await gateway.lease(access, model, family)
    held.callback(loaded.release)
    request.state.client = loaded.subject.client
    return loaded.subject


def _add_knowledge(app: FastAPI, gateway: Gateway) -> None:
    access_of = _access_dependency(gateway)

    @app.get("/v1/models")
    async def models(access: Annotated[Access, Depends(access_of)]) -> dict[str, Any]:
        return {"object": "list", "data": await asyncio.to_thread(gateway.models, access)}

    @app.get("/v1/models/{model}")
    async def model(model: str, access: Annotated[Access, Depends(access_of)]) -> dict[str, Any]:
        found = [entry for entry in await asyncio.to_thread(gateway.models, access) if entry["id"] == model]
        if not found:
            raise not_opened(model)
        return found[0]

    @app.get("/v1/clients/{client}")
    async def client(client: str, access: Annotated[Access, Depends(access_of)]) -> dict[str, Any]:
        if not access.allows(client):
            raise not_opened(client)
        gateway.require_known(client)
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
        return JSONResponse(gateway.readiness(), 200 if gateway.ready else 503)

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
        access = gateway.keys.authenticate(_authorization(request))
        request.state.owner = access.owner
        return access

    return access_of


async def _held() -> AsyncIterator[AsyncExitStack]:
    """What is held until the answer has been sent, or nobody is there any more to take it."""
    async with AsyncExitStack() as stack:
        yield stack


def _authorization(request: Request) -> str | None:
    return request.headers.get("authorization")


def _require_admin(access: Access) -> None:
    if not access.admin:
        raise GatewayError(403, "this needs an admin key")


def _identity_headers(subject: Subject) -> dict[str, str]:
    return {f"X-FedTailor-{name.title()}": value for name, value in subject.identity.items()}


async def _events(
    first: dict[str, Any], chunks: AsyncGenerator[dict[str, Any]], still_open: Callable[[], None]
) -> AsyncIterator[str]:
    """Server-sent events of an answer; an error that comes too late for a status is the last of them.

    ``still_open`` raises one of those where the key has been taken away meanwhile.
    """
    try:
        yield _event(first)
        async for chunk in chunks:
            still_open()
            yield _event(chunk)
        yield "data: [DONE]\n\n"
    except GatewayError as error:
        yield _event(error.body())


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
