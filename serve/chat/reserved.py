"""Keeps the user's words out of a prompt's control: special tokens are the template's alone to write.

A text that holds a special token is found by looking at it. One that is put together from several texts, or from a text
and what the template writes beside it, is only there in the rendered prompt: as the tokenizer reads it, it has to have
exactly the special tokens that the template gives the same conversation with harmless words in it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from serve.errors import invalid
from serve.schemas import Message, TextPart

HARMLESS = "x"


class Reserved:
    """The special tokens of one base's tokenizer, of which ``tokens`` lists the texts."""

    def __init__(self, base: Path, tokens: Iterable[str]) -> None:
        self._tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
        self._tokens = sorted(tokens)
        self._ids = {self._tokenizer.token_to_id(token) for token in self._tokens} - {None}

    def refuse(self, messages: Sequence[Message]) -> None:
        """400 where a text of the conversation has a special token in it."""
        for index, message in enumerate(messages):
            for part in message.parts:
                for token in self._tokens if isinstance(part, TextPart) else ():
                    if token in part.text:  # type: ignore[union-attr]
                        raise invalid(f"messages.{index} contains {token!r}, which is reserved", f"messages.{index}")

    def refuse_made_up(self, prompt: str, written: Counter[str]) -> None:
        """400 where the prompt has other special tokens than the one of the template with ``harmless`` messages."""
        if (found := self.count(prompt)) != written:
            token = next(iter((found - written) or (written - found)))
            raise invalid(f"messages together make {token!r}, which is reserved", "messages")

    def count(self, prompt: str) -> Counter[str]:
        """How often each special token is in the prompt, as the tokenizer reads it."""
        encoded = self._tokenizer.encode(prompt, add_special_tokens=False)
        return Counter(token for token, one in zip(encoded.tokens, encoded.ids, strict=True) if one in self._ids)


def harmless(messages: Sequence[Message]) -> list[Message]:
    """The same conversation with other words: every text that is not blank is replaced."""
    return [message.model_copy(update={"content": [_harmless(part) for part in message.parts]}) for message in messages]


def _harmless(part: object) -> object:
    if isinstance(part, TextPart) and part.text.strip():
        return part.model_copy(update={"text": HARMLESS})
    return part
