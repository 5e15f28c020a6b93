"""Requests as they come in: parsed after the key was checked, off the event loop, images decoded."""

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile

from serve.errors import invalid
from serve.images import Picture, bytes_of_data_url, decode_image
from serve.refusals import invalid_fields
from serve.schemas import MAX_CLASSES, ClassifyRequest
from serve.settings import Settings

Model = TypeVar("Model", bound=BaseModel)


async def read_json(request: Request, model: type[Model]) -> Model:
    """The body as that model; 400 with the first field at fault."""
    body = await request.body()
    try:
        return await asyncio.to_thread(model.model_validate_json, body)
    except ValidationError as error:
        raise invalid_fields(error.errors()) from error


async def read_classification(request: Request, settings: Settings) -> tuple[ClassifyRequest, Picture]:
    """What was asked, as JSON with a data URL or as a form with a file, and the picture; 400 where one is at fault."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        asked, data = await _from_form(request)
    else:
        asked = await read_json(request, ClassifyRequest)
        data = await asyncio.to_thread(bytes_of_data_url, asked.image, settings, "image")
    return asked, await asyncio.to_thread(decode_image, data, settings, "image")


async def _from_form(request: Request) -> tuple[ClassifyRequest, bytes]:
    async with request.form(max_files=1, max_fields=MAX_CLASSES + 4) as form:
        image = form.get("image")
        if not isinstance(image, UploadFile):
            raise invalid("field 'image' must be a file of the form", "image")
        fields: dict[str, Any] = {name: value for name, value in form.items() if name != "image"}
        if "classes" in fields:
            fields["classes"] = form.getlist("classes")
        try:
            return ClassifyRequest.model_validate(fields | {"image": ""}), await image.read()
        except ValidationError as error:
            raise invalid_fields(error.errors()) from error
