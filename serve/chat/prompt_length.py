"""Refuses what cannot fit into a model's context by its length alone, before anything renders or tokenises it."""

import json
from collections.abc import Sequence
from pathlib import Path

from serve.errors import invalid
from serve.schemas import Message, TextPart


class PromptLength:
    """A context of ``tokens`` tokens, in characters of the base's tokenizer."""

    def __init__(self, base: Path, tokens: int) -> None:
        self._tokens = tokens
        self._characters = tokens * longest_token(base)

    def check(self, messages: Sequence[Message]) -> None:
        """400 where the texts are longer than as many tokens as fit, each the longest that there is.

        Runs of blanks count in full, also where the tokenizer takes them for one.
        """
        found = sum(len(part.text) for message in messages for part in message.parts if isinstance(part, TextPart))
        if found > self._characters:
            raise invalid(
                f"messages have {found} characters: at most {self._characters} can be "
                f"within the {self._tokens} tokens of this model's context",
                "messages",
            )

    def check_answer(self, tokens: int) -> None:
        """400 where an answer of that many tokens is asked for, and the context has fewer."""
        if tokens > self._tokens:
            raise invalid(f"field 'max_tokens': found {tokens}, at most {self._tokens} are possible here", "max_tokens")


def longest_token(base: Path) -> int:
    """Characters of the longest entry of the base's vocabulary."""
    tokenizer = json.loads((base / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]  # a mapping to ids, or (text, score) each
    texts = vocabulary if isinstance(vocabulary, dict) else (entry[0] for entry in vocabulary)
    return max(len(text) for text in (*texts, *(token["content"] for token in tokenizer["added_tokens"])))
