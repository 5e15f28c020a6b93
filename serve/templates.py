"""An artefact's own prompt template over a conversation: rendered in a sandbox, off the event loop, in bounded time."""

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from adapters_store.template_sandbox import SAMPLE, Sandbox, TemplateExceededError, TemplateFailedError
from serve.errors import invalid
from serve.schemas import Message, TextPart

SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
SANDBOXES = 2  # a template that is slow keeps one of them busy; the others' use the other


class Prompts:
    """Renders conversations for one tokenizer. Its special tokens are for templates only: users may not write them."""

    def __init__(self, base: Path) -> None:
        self._special = _special_tokens(base)
        config = json.loads((base / "config.json").read_text())
        self._reserved = {*self._special.values(), *_added_special_tokens(base)}
        self.image_token = _added_tokens(base)[config.get("image_token_index", config.get("image_token_id"))]
        self._reserved.add(self.image_token)
        self._free: asyncio.Queue[Sandbox] = asyncio.Queue()
        self._sandboxes = [Sandbox() for _ in range(SANDBOXES)]
        for sandbox in self._sandboxes:
            self._free.put_nowait(sandbox)
        self._threads = ThreadPoolExecutor(SANDBOXES, thread_name_prefix="templates")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # one sandbox at most a template

    async def render(self, template: str, messages: Sequence[Message]) -> str:
        """The prompt up to where the answer begins, with one image token for each image; 400 where it cannot be.

        TemplateExceededError where the template had to be stopped: it is then the artefact that is at fault.
        """
        self._refuse_reserved(messages)
        images = sum(1 for message in messages for part in message.parts if not isinstance(part, TextPart))
        try:
            return await self._rendered(template, [_as_plain(message) for message in messages], images)
        except TemplateFailedError as error:
            raise invalid(f"this model's prompt template takes no such conversation: {error}", "messages") from error

    async def check(self, template: str) -> None:
        """ValueError with one sentence unless the template takes a question, with a picture and without one."""
        for conversation, images in ((SAMPLE, 1), ([{**SAMPLE[0], "content": SAMPLE[0]["content"][1:]}], 0)):
            try:
                await self._rendered(template, conversation, images)
            except TemplateFailedError as error:
                raise ValueError(f"its prompt_template fails over a plain question: {error}") from error

    async def close(self) -> None:
        """Ends the sandboxes."""
        self._threads.shutdown(wait=True)
        for sandbox in self._sandboxes:
            sandbox.close()

    async def _rendered(self, template: str, conversation: Sequence[dict[str, Any]], images: int) -> str:
        work = asyncio.create_task(self._in_turn(template, conversation))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to look at it
        prompt = await asyncio.shield(work)  # whoever asked may go away; the sandbox is busy until it is through
        if prompt.count(self.image_token) != images:
            raise TemplateFailedError(f"it has no place for {images} images there")
        return prompt

    async def _in_turn(self, template: str, conversation: Sequence[dict[str, Any]]) -> str:
        turn = self._turns.get(template)
        if turn is None:
            turn = self._turns[template] = asyncio.Lock()
        async with turn:
            sandbox = await self._free.get()
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, sandbox.render, template, conversation, self._special)
            finally:
                self._free.put_nowait(sandbox)

    def _refuse_reserved(self, messages: Sequence[Message]) -> None:
        for index, message in enumerate(messages):
            for part in message.parts:
                for token in self._reserved if isinstance(part, TextPart) else ():
                    if token in part.text:  # type: ignore[union-attr]
                        raise invalid(f"messages.{index} contains {token!r}, which is reserved", f"messages.{index}")


def _as_plain(message: Message) -> dict[str, Any]:
    parts = [{"type": "text", "text": p.text} if isinstance(p, TextPart) else {"type": "image"} for p in message.parts]
    return {"role": message.role, "content": parts}


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
