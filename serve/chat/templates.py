"""An artefact's own prompt template over a conversation: rendered in a sandbox, off the event loop, in bounded time."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adapters_store.templates.chat_template import Conversation
from adapters_store.templates.sandbox import SAMPLE, TemplateFailedError
from serve.chat.reserved import Reserved, harmless
from serve.chat.sandboxes import Sandboxes
from serve.errors import invalid
from serve.schemas import Message, Part, TextPart

SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
FORMS = 1024  # of conversations under templates, whose special tokens are remembered
WITH_PICTURE = SAMPLE
WITHOUT = [{"role": "user", "content": [part for part in SAMPLE[0]["content"] if part["type"] == "text"]}]


class Prompts:
    """Renders conversations for one tokenizer. Its special tokens are for templates only: users may not write them."""

    def __init__(self, base: Path) -> None:
        self._special = _special_tokens(base)
        config = json.loads((base / "config.json").read_text())
        self.image_token = _added_tokens(base)[config.get("image_token_index", config.get("image_token_id"))]
        self._reserved = Reserved(base, {*self._special.values(), *_added_special_tokens(base), self.image_token})
        self._sandboxes = Sandboxes()
        self._written: dict[tuple[str, str], Counter[str]] = {}  # by template and form of a conversation, oldest first

    async def render(self, template: str, messages: Sequence[Message]) -> str:
        """The prompt up to where the answer begins, with one image token for each image; 400 where it cannot be.

        TemplateExceededError where the template had to be stopped: it is then the artefact that is at fault.
        """
        self._reserved.refuse(messages)
        try:
            prompt = await self._rendered(template, _as_plain(messages))
            written = await self._special_tokens_of(template, _as_plain(harmless(messages)))
        except TemplateFailedError as error:
            raise invalid(f"this model's prompt template takes no such conversation: {error}", "messages") from error
        await asyncio.to_thread(self._reserved.refuse_made_up, prompt, written)
        images = sum(1 for message in messages for part in message.parts if not isinstance(part, TextPart))
        if prompt.count(self.image_token) != images:
            raise invalid(f"this model's prompt template has no place for {images} images there", "messages")
        return prompt

    async def check(self, template: str) -> None:
        """ValueError with one sentence unless the template takes a question, with a picture and without one."""
        for conversation, images in ((WITH_PICTURE, 1), (WITHOUT, 0)):
            try:
                prompt = await self._rendered(template, conversation)
            except TemplateFailedError as error:
                raise ValueError(f"its prompt_template fails over a plain question: {error}") from error
            if prompt.count(self.image_token) != images:
                raise ValueError(f"its prompt_template has no place for {images} images")

    async def close(self) -> None:
        """Ends the sandboxes."""
        await self._sandboxes.close()

    async def _special_tokens_of(self, template: str, conversation: Conversation) -> Counter[str]:
        """What the template itself writes about a conversation of that form, which is remembered."""
        form = template, json.dumps(conversation)
        found = self._written.get(form)
        if found is None:
            prompt = await self._rendered(template, conversation)
            found = self._written[form] = await asyncio.to_thread(self._reserved.count, prompt)
            if len(self._written) > FORMS:
                del self._written[next(iter(self._written))]
        return found

    async def _rendered(self, template: str, conversation: Conversation) -> str:
        return await self._sandboxes.render(template, conversation, self._special)


def _as_plain(messages: Sequence[Message]) -> Conversation:
    return [{"role": m.role, "content": [_plain_part(part) for part in m.parts]} for m in messages]


def _plain_part(part: Part) -> dict[str, str]:
    return {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}


def _special_tokens(base: Path) -> dict[str, str]:
    config = json.loads((base / "tokenizer_config.json").read_text())
    found = {name: config.get(name) for name in SPECIAL}
    return {name: token["content"] if isinstance(token, dict) else token for name, token in found.items() if token}


def _added(base: Path) -> list[dict[str, Any]]:
    added: list[dict[str, Any]] = json.loads((base / "tokenizer.json").read_text())["added_tokens"]
    return added


def _added_tokens(base: Path) -> dict[int, str]:
    return {token["id"]: token["content"] for token in _added(base)}


def _added_special_tokens(base: Path) -> list[str]:
    return [token["content"] for token in _added(base) if token["special"]]
