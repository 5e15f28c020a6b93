"""Every refusal in OpenAI's shape, FastAPI's own ones too."""

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from adapters_store.store import StoreError
from serve.errors import GatewayError, invalid, unavailable

log = logging.getLogger(__name__)


def install_handlers(app: FastAPI) -> None:
    """Turns every way a request can fail into a sentence with a status."""
    app.add_exception_handler(GatewayError, _gateway_error)
    app.add_exception_handler(StoreError, _store_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


def response_of(error: GatewayError) -> JSONResponse:
    """The error as an answer."""
    return JSONResponse(error.body(), error.status, headers=error.headers())


def invalid_fields(errors: Sequence[Any]) -> GatewayError:
    """400 with one sentence about the first field at fault, as pydantic found it."""
    relevant = [error for error in errors if error["type"] != "string_type"] or list(errors)
    first = relevant[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body" and "[" not in str(part))
    if first["type"] == "extra_forbidden":
        return invalid(f"field {where!r} is not supported here", where)
    if first["type"] == "json_invalid":
        return invalid("the request's body is not valid JSON")
    if first["type"] == "missing":
        return invalid(f"field {where!r} is missing", where or None)
    return invalid(f"field {where!r}: {first['msg'].removeprefix('Value error, ')}", where)


async def _gateway_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, GatewayError)
    return response_of(error)


async def _store_error(_: Request, error: Exception) -> JSONResponse:
    return response_of(unavailable(str(error), retry_after_s=60))


async def _validation_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError | ValidationError)
    return response_of(invalid_fields(error.errors()))


async def _http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = {404: f"there is no {request.url.path}", 405: f"{request.method} is not for {request.url.path}"}
    return response_of(GatewayError(error.status_code, message.get(error.status_code, str(error.detail))))


async def _gone(_: Request, __: Exception) -> JSONResponse:
    return response_of(invalid("the connection was closed in the middle of the request's body"))  # nobody reads it


async def _unexpected(_: Request, error: Exception) -> JSONResponse:
    log.error("a request failed unexpectedly", exc_info=error)
    return response_of(GatewayError(500, "the gateway failed at this request; its log says why"))
