"""A prompt template rendered as transformers does it. It is a program of somebody else's: run it in the sandbox only.

A conversation is a list of ``{"role": …, "content": [{"type": "text", "text": …} | {"type": "image"}, …]}``.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

Conversation = Sequence[Mapping[str, Any]]


def render(template: str, conversation: Conversation, special: Mapping[str, str]) -> str:
    """The prompt up to where the answer begins. Whatever the template does may come out as an exception."""
    messages = list(conversation) if takes_parts(template) else [_as_text(message) for message in conversation]
    return compiled(template).render(messages=messages, add_generation_prompt=True, **special)


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


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    texts = [part["text"] for part in message["content"] if part["type"] == "text"]
    return {"role": message["role"], "content": "\n".join(texts)}
