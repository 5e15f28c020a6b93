"""An artefact's own prompt template, rendered as transformers would, in a sandbox."""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from serve.errors import invalid
from serve.reserved import Reserved, harmless
from serve.schemas import Message, TextPart

SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


class Prompts:
    """Renders conversations for one tokenizer. Its special tokens are for templates only: users may not write them."""

    def __init__(self, base: Path) -> None:
        self._special = _special_tokens(base)
        config = json.loads((base / "config.json").read_text())
        self.image_token = _added_tokens(base)[config.get("image_token_index", config.get("image_token_id"))]
        self._reserved = Reserved(base, {*self._special.values(), *_added_special_tokens(base), self.image_token})

    def render(self, template: str, messages: Sequence[Message]) -> str:
        """The prompt up to where the answer begins, with one image token for each image; 400 where it cannot be."""
        self._reserved.refuse(messages)
        try:
            prompt, of_template = (self._rendered(template, said) for said in (messages, harmless(messages)))
        except Exception as error:  # a template is a program of somebody else's: anything may come out of it
            raise invalid(f"this model's prompt template takes no such conversation: {error}", "messages") from error
        self._reserved.refuse_made_up(prompt, of_template)
        images = sum(1 for message in messages for part in message.parts if not isinstance(part, TextPart))
        if prompt.count(self.image_token) != images:
            raise invalid(f"this model's prompt template has no place for {images} images there", "messages")
        return prompt

    def _rendered(self, template: str, messages: Sequence[Message]) -> str:
        plain = _as_parts if takes_parts(template) else _as_text
        return compiled(template).render(
            messages=[plain(message) for message in messages], add_generation_prompt=True, **self._special
        )


class _Generation(Extension):
    """``{% generation %}`` marks for training what the assistant says; here it stands for its content."""

    tags = {"generation"}  # noqa: RUF012  jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=256)
def compiled(template: str) -> Template:
    """The template, compiled with the names and settings that transformers gives chat templates."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)
    return environment.from_string(template)


@lru_cache(maxsize=256)
def takes_parts(template: str) -> bool:
    """Whether the template reads content as a list of parts; the others would print the list itself."""
    content = [{"type": "text", "text": "a-text-to-find"}]
    try:
        prompt = compiled(template).render(messages=[{"role": "user", "content": content}], add_generation_prompt=True)
    except Exception:  # a template that cannot read parts may fail in any way
        return False
    return "a-text-to-find" in prompt and "'type'" not in prompt


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _as_parts(message: Message) -> dict[str, Any]:
    parts = [{"type": "text", "text": p.text} if isinstance(p, TextPart) else {"type": "image"} for p in message.parts]
    return {"role": message.role, "content": parts}


def _as_text(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": "\n".join(p.text for p in message.parts if isinstance(p, TextPart))}


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
