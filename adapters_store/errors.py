"""What the store refuses, in words fit for a person and for one line of a log."""

import reprlib

SENTENCE_CHARS = 800  # a sentence may quote what was found, and what was found may be megabytes

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 100  # characters
_brief.maxlevel = 3


class StoreError(Exception):
    """What the store refuses, and why; the message is one sentence: one printable line of bounded length."""

    def __init__(self, sentence: str) -> None:
        cut = sentence if len(sentence) <= SENTENCE_CHARS else sentence[: SENTENCE_CHARS - 2] + " …"
        super().__init__("".join(char if char.isprintable() else "�" for char in cut))


def shown(value: object) -> str:
    """A value that was found somewhere, as code shows it, shortened."""
    return _brief.repr(value)
