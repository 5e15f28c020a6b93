"""What requests may say. A field that is not named here is refused, so that nothing reaches the engine unseen:
vLLM would take ``uuid`` (another client's cached image), ``*_embeds``, ``cache_salt``, ``mm_processor_kwargs``, …
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_TEXT = 100_000  # characters of one text; the model's context is far shorter
MAX_CLASSES = 1000  # names in one list of classes
MAX_CLASS_NAME = 200  # characters; a text tower has a few dozen tokens


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TextPart(_Strict):
    """A piece of text of a message."""

    type: Literal["text"]
    text: Annotated[str, Field(max_length=MAX_TEXT)]


class ImageUrl(_Strict):
    """An image as a data URL; ``detail`` is accepted and has no effect."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(_Strict):
    """An image of a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(_Strict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=MAX_TEXT)] | list[Part]
    name: str | None = None

    @property
    def parts(self) -> list[Part]:
        """The content as parts."""
        return [TextPart(type="text", text=self.content)] if isinstance(self.content, str) else self.content


class StreamOptions(_Strict):
    """Whether the last chunk of a stream says how many tokens there were."""

    include_usage: bool = False


class Sampling(_Strict):
    """What goes to the engine as it is, where the request names it."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    n: Annotated[int, Field(ge=1, le=8)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    return_token_ids: bool | None = None  # vLLM's extension: the answer's token ids, to compare answers exactly


class ChatRequest(Sampling):
    """OpenAI's chat completion request, as far as it is served."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=256)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    # Accepted, since clients send them unasked, and without effect here.
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    def sampling(self) -> dict[str, Any]:
        """The fields of ``Sampling`` that the request names."""
        return self.model_dump(include=set(Sampling.model_fields), exclude_none=True)

    @property
    def answer_tokens(self) -> int | None:
        """How long the answer may be, by the new or the old name of the field."""
        return self.max_completion_tokens or self.max_tokens


def _not_blank(name: str) -> str:
    if not name.strip():
        raise ValueError("a class name of blanks alone is not allowed")
    return name


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} is there twice; names must differ")
    return names


ClassName = Annotated[str, Field(min_length=1, max_length=MAX_CLASS_NAME), AfterValidator(_not_blank)]
ClassNames = Annotated[list[ClassName], Field(min_length=1, max_length=MAX_CLASSES), AfterValidator(_distinct)]


class ClassifyRequest(_Strict):
    """An image to name, as a data URL; with ``classes``, over these names, without what a prompt has learned."""

    model: str
    image: str
    top_k: Annotated[int, Field(ge=1, le=1000)] = 5
    classes: ClassNames | None = None


class LoginRequest(_Strict):
    """A key, to learn what it opens."""

    key: str
