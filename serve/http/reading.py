"""Requests as they come in: parsed after the key was checked, off the event loop."""

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile

from serve.errors import invalid
from serve.http.refusals import invalid_fields
from serve.schemas import MAX_CLASSES, ClassifyRequest

MAX_VALUES = (
    200_000  # of one body: lists, objects and what is in them, each of which takes far more memory than its text
)
Model = TypeVar("Model", bound=BaseModel)


async def read_json(request: Request, model: type[Model]) -> Model:
    """The body as that model; 400 with the first field at fault. The bytes are not kept."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
    try:
        return await asyncio.to_thread(_parsed, body, model)
    except ValidationError as error:
        raise invalid_fields(error.errors()) from error


async def read_classification(request: Request) -> tuple[ClassifyRequest, bytes | None]:
    """What was asked, as JSON with a data URL or as a form, and the form's file; 400 where one is at fault."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await _from_form(request)
    return await read_json(request, ClassifyRequest), None


def _parsed(body: bytearray, model: type[Model]) -> Model:
    values = sum(body.count(sign) for sign in (b"{", b"[", b","))  # texts have them too, but not so many
    if values > MAX_VALUES:
        raise invalid(f"the request's body has about {values} values: at most {MAX_VALUES} are read")
    return model.model_validate_json(body)


async def _from_form(request: Request) -> tuple[ClassifyRequest, bytes]:
    async with request.form(max_files=1, max_fields=MAX_CLASSES + 4) as form:
        image = form.get("image")
        if not isinstance(image, UploadFile):
            raise invalid("field 'image' must be a file of the form", "image")
        fields: dict[str, Any] = {name: value for name, value in form.items() if name != "image"}
        fields |= {name: form.getlist(name) for name in ("classes", "window") if name in fields}
        try:
            return ClassifyRequest.model_validate(fields | {"image": ""}), await image.read()
        except ValidationError as error:
            raise invalid_fields(error.errors()) from error
