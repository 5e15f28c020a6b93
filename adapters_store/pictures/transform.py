"""How an encoder wants its pictures, as a manifest records it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from adapters_store import limits

Mean = Annotated[float, Field(ge=-limits.MEAN, le=limits.MEAN)]
Std = Annotated[float, Field(ge=limits.STD[0], le=limits.STD[1])]


class ImageTransform(BaseModel):
    """How an RGB uint8 image becomes the encoder's input: side in pixels, then /255, then (x - mean) / std.

    ``resize``: ``squash`` to a square; or the shorter side to ``size`` and a crop of the centre, which lies where
    open_clip and torchvision (``shortest``) or Hugging Face's processors (``shortest_edge``) round it to.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Annotated[int, Field(gt=0, le=limits.IMAGE_SIDE)]
    mean: tuple[Mean, Mean, Mean]
    std: tuple[Std, Std, Std]
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    resize: Literal["squash", "shortest", "shortest_edge"] = "squash"

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without ``resize`` where it squashes: versions from before there was another way keep their names."""
        fields: dict[str, Any] = write(self)
        if self.resize == "squash":
            del fields["resize"]
        return fields
