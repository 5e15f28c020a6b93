"""A conversation with one subject: images to soft tokens, messages to a prompt, the answer to OpenAI's shape."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adapters_store.templates.sandbox import TemplateExceededError
from serve.chat.prompt_length import PromptLength
from serve.chat.soft_tokens import SoftTokens, engine_payload
from serve.chat.templates import Prompts
from serve.engine.process import Engine
from serve.engine.sentinel import NotFiniteError
from serve.errors import invalid, unavailable
from serve.pictures.decoding import Decoder
from serve.pictures.images import Picture, Sent
from serve.schemas import SEVERAL_TEMPERATURE, ChatRequest, ImagePart, Message
from serve.settings import Settings
from serve.versions.subjects import Subject

MESSAGE_FIELDS = ("role", "content", "refusal")
CHOICE_FIELDS = ("index", "message", "delta", "logprobs", "finish_reason", "token_ids")
USAGE_FIELDS = ("prompt_tokens", "completion_tokens", "total_tokens")


@dataclass(frozen=True)
class Question:
    """What a request asks of one subject, with nothing left in it of what the request's body was."""

    subject: Subject
    owner: str  # of the key: what is cached for one is not there for another
    prompt: str
    pictures: Sequence[Picture]
    options: dict[str, Any]  # as the engine takes them
    answers: int
    stream: bool


class Chat:
    """Answers over the engine. Torch and image work happen off the event loop."""

    def __init__(
        self,
        base: Path,
        engine: Engine,
        soft_tokens: SoftTokens,
        prompts: Prompts,
        decoder: Decoder,
        settings: Settings,
        on_fault: Callable[[Subject, str], Awaitable[None]],
    ) -> None:
        """``on_fault`` is told of a subject that is not to be answered with any more, and why."""
        context = settings.max_model_len or soft_tokens.limit
        self._engine = engine
        self._soft_tokens = soft_tokens
        self._decoder = decoder
        self._prompts = prompts
        self._on_fault = on_fault
        self._length = PromptLength(base, context)
        self._settings = settings
        # the engine refuses more than its context as a whole, and ends an answer where the context does
        self._default_tokens = min(settings.default_max_tokens, context)

    async def question(self, request: ChatRequest, subject: Subject, owner: str) -> Question:
        """What whoever ``owner`` is asks of the subject; 400 where that cannot be answered."""
        self._engine.require_up()
        check_conversation(request.messages)
        self._length.check(request.messages)
        self._length.check_answer(request.answer_tokens or 1)
        prompt = await self._prompt(subject, request.messages)
        pictures = await self._decoder.of_urls(owner, self._sent(request.messages), subject.image_transform)
        stream, options = bool(request.stream), self._options(request)
        return Question(subject, owner, prompt, pictures, options, request.answers, stream)

    async def answer(self, question: Question) -> dict[str, Any]:
        """The whole answer."""
        client = self._engine.require_up()
        body = await self._engine_request(question)
        async with self._telling(question.subject):
            return shaped(await client.chat(body), question.subject)

    async def stream(self, question: Question) -> AsyncGenerator[dict[str, Any]]:
        """The answer chunk by chunk, each in OpenAI's shape."""
        client = self._engine.require_up()
        body = await self._engine_request(question)
        async with self._telling(question.subject), aclosing(client.stream(body)) as chunks:
            async for chunk in chunks:
                yield shaped(chunk, question.subject)

    @asynccontextmanager
    async def _telling(self, subject: Subject) -> AsyncIterator[None]:
        try:
            yield
        except NotFiniteError:
            await self._on_fault(subject, "its numbers were not finite in an answer")
            raise

    async def _prompt(self, subject: Subject, messages: Sequence[Message]) -> str:
        try:
            return await self._prompts.render(subject.prompt_template, messages)
        except TemplateExceededError as error:
            await self._on_fault(subject, str(error))
            raise unavailable(f"{subject.name} cannot answer: {error}", retry_after_s=60) from error

    def _options(self, request: ChatRequest) -> dict[str, Any]:
        several = SEVERAL_TEMPERATURE if request.answers > 1 else 0
        asked = {"temperature": self._settings.default_temperature or several, **request.sampling()}
        if request.stream and request.stream_options is not None:
            asked["stream_options"] = {"include_usage": request.stream_options.include_usage}
        tokens = request.answer_tokens or self._default_tokens
        return {**asked, "max_tokens": tokens}

    async def _engine_request(self, question: Question) -> dict[str, Any]:
        subject, owner = question.subject, question.owner
        tokens = await asyncio.gather(*(self._soft_tokens(owner, picture, subject) for picture in question.pictures))
        embeds = await asyncio.to_thread(self._image_parts, tokens)
        return {
            **question.options,
            "model": subject.name,
            "messages": [{"role": "user", "content": [*embeds, {"type": "text", "text": question.prompt}]}],
            "add_special_tokens": False,  # the template wrote them
            "cache_salt": owner,  # nobody can time what another asked
        }

    def _image_parts(self, tokens: Sequence[Tensor]) -> list[dict[str, str]]:
        width, limit, dtype = self._soft_tokens.width, self._soft_tokens.limit, getattr(torch, self._settings.dtype)
        return [{"type": "image_embeds", "image_embeds": engine_payload(t, width, limit, dtype)} for t in tokens]

    def _sent(self, messages: Sequence[Message]) -> list[Sent]:
        """Every image, in order."""
        sent = [
            Sent(part.image_url.url, f"messages.{index}.content.{place}.image_url.url", part.image_url.window)
            for index, message in enumerate(messages)
            for place, part in enumerate(message.parts)
            if isinstance(part, ImagePart)
        ]
        if len(sent) > self._settings.max_images:
            raise invalid(f"messages hold {len(sent)} images: at most {self._settings.max_images} are read", "messages")
        return sent


def check_conversation(messages: Sequence[Message]) -> None:
    """400 unless the last word is the user's and no message of theirs is empty."""
    for index, message in enumerate(messages):
        said = any(isinstance(part, ImagePart) or part.text.strip() for part in message.parts)
        if message.role == "user" and not said:
            raise invalid(f"messages.{index} is empty: it needs text or an image", f"messages.{index}.content")
        if message.role != "user" and any(isinstance(part, ImagePart) for part in message.parts):
            raise invalid(
                f"messages.{index} holds an image: only messages of the user may", f"messages.{index}.content"
            )
    if messages[-1].role != "user":
        raise invalid(f"the last message is from {messages[-1].role!r}: it must be from 'user'", "messages")


def shaped(answer: dict[str, Any], subject: Subject) -> dict[str, Any]:
    """An answer of vLLM, or a chunk of one, with OpenAI's fields only, and ours that says who answered."""
    usage = answer.get("usage")
    return {
        "id": answer["id"],
        "object": answer["object"],
        "created": answer["created"],
        "model": subject.name,
        "choices": [_choice(choice) for choice in answer["choices"]],
        **({"usage": {name: usage[name] for name in USAGE_FIELDS if name in usage}} if usage else {}),
        "fedtailor": subject.identity,
    }


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    kept = {name: choice[name] for name in CHOICE_FIELDS if name in choice}
    for said in ("message", "delta"):
        if said in kept:
            kept[said] = {name: value for name, value in kept[said].items() if name in MESSAGE_FIELDS}
    if kept.get("token_ids") is None:
        kept.pop("token_ids", None)
    return kept
