"""A classification request, as JSON with a data URL or as a form with a file."""

from fastapi import Request
from PIL import Image
from pydantic import ValidationError
from starlette.datastructures import UploadFile

from serve.errors import invalid
from serve.images import bytes_of_data_url, decode_image
from serve.refusals import invalid_fields
from serve.schemas import ClassifyRequest
from serve.settings import Settings


async def read_classification(request: Request, settings: Settings) -> tuple[ClassifyRequest, Image.Image]:
    """What was asked, and the decoded picture; 400 where either is at fault."""
    try:
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            return await _from_form(request, settings)
        asked = ClassifyRequest.model_validate_json(await request.body())
    except ValidationError as error:
        raise invalid_fields(error.errors()) from error
    return asked, decode_image(bytes_of_data_url(asked.image, settings, "image"), settings, "image")


async def _from_form(request: Request, settings: Settings) -> tuple[ClassifyRequest, Image.Image]:
    async with request.form(max_files=1, max_fields=4) as form:
        image = form.get("image")
        if not isinstance(image, UploadFile):
            raise invalid("field 'image' must be a file of the form", "image")
        fields = {name: value for name, value in form.items() if name != "image"}
        asked = ClassifyRequest.model_validate(fields | {"image": ""})
        return asked, decode_image(await image.read(), settings, "image")
