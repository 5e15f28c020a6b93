"""What requests may say. A field that is not named here is refused, so that nothing reaches the engine unseen:
vLLM would take ``uuid`` (another client's cached image), ``*_embeds``, ``cache_salt``, ``mm_processor_kwargs``, …
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MAX_TEXT = 100_000  # characters of one text; the model's context is far shorter
MAX_PARTS = 256  # texts and images of one message
SEVERAL_TEMPERATURE = 1.0  # OpenAI's default: of several answers without any, all would be the same one
MAX_CLASSES = 1000  # names in one list of classes
MAX_CLASS_NAME = 200  # characters; a text tower has a few dozen tokens


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Window = Annotated[
    tuple[Annotated[float, Field(allow_inf_nan=False)], Annotated[float, Field(gt=0, allow_inf_nan=False)]],
    Field(description="centre and width of the greys that are seen"),
]
"""What of a greyscale picture is seen (adapters_store/pictures/reader.py)."""


class TextPart(_Strict):
    """A piece of text of a message."""

    type: Literal["text"]
    text: Annotated[str, Field(max_length=MAX_TEXT)]


class ImageUrl(_Strict):
    """An image as a data URL, and ``window`` for one of greys; ``detail`` is accepted and has no effect."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None
    window: Window | None = None


class ImagePart(_Strict):
    """An image of a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


def _nothing(value: object) -> None:
    if value not in (None, [], {}):
        raise ValueError("only null or an empty one is taken: these models call no tools, and say text alone")


Nothing = Annotated[None, BeforeValidator(_nothing)]
"""A field of OpenAI's answers that is always empty in ours, as a client sends it back."""


class Message(_Strict):
    """One turn of a conversation. An assistant's may be the message of an answer, as OpenAI's client has it."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=MAX_TEXT)] | Annotated[list[Part], Field(max_length=MAX_PARTS)] | None
    name: str | None = None
    refusal: Nothing = None
    annotations: Nothing = None
    audio: Nothing = None
    function_call: Nothing = None
    tool_calls: Nothing = None
    parsed: Nothing = None  # of the client's helper for structured answers

    @model_validator(mode="after")
    def _said(self) -> "Message":
        if self.content is None and self.role != "assistant":
            raise ValueError(f"content is null: only an assistant's may be, and this one is of role {self.role!r}")
        return self

    @property
    def parts(self) -> list[Part]:
        """The content as parts."""
        return self.content if isinstance(self.content, list) else [TextPart(type="text", text=self.content or "")]


StopText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class StreamOptions(_Strict):
    """Whether the last chunk of a stream says how many tokens there were."""

    include_usage: bool = False


class Sampling(_Strict):
    """What goes to the engine as it is, where the request names it.

    Without a ``temperature`` one answer is greedy by default, and several (``n``) are drawn at OpenAI's default of 1;
    several at temperature 0 would be one and the same, and are refused.
    """

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=4)] | None = None
    n: Annotated[int, Field(ge=1, le=8)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    return_token_ids: bool | None = None  # vLLM's extension: the answer's token ids, to compare answers exactly

    @model_validator(mode="after")
    def _possible(self) -> "Sampling":
        if self.top_logprobs and not self.logprobs:
            raise ValueError(f"field 'top_logprobs' is {self.top_logprobs}, which needs 'logprobs' to be true")
        if self.answers > 1 and self.temperature == 0:
            raise ValueError(f"field 'n' is {self.n} at temperature 0, where all answers are the same: ask for one")
        return self

    @property
    def answers(self) -> int:
        """How many answers are asked for."""
        return self.n or 1


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
    window: Window | None = None
    top_k: Annotated[int, Field(ge=1, le=1000)] = 5
    classes: ClassNames | None = None


class LoginRequest(_Strict):
    """A key, to learn what it opens."""

    key: str
