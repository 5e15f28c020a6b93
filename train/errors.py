"""What ends a run with a sentence instead of a traceback."""

import signal
from typing import Final

REFUSED: Final = 2
INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit statuses."""


class ConfigError(Exception):
    """The configuration cannot be followed: for each thing that is wrong a line with the field, what was found, what is
    allowed."""


class RunError(Exception):
    """One sentence: why the run cannot start or go on; ``status`` is what the command exits with.

    ``of_one``: it may be this process alone that met it; what is refused before the run, all of them meet.
    """

    def __init__(self, sentence: str, status: int = REFUSED, of_one: bool = False) -> None:
        super().__init__(" ".join(sentence.split()))
        self.status = status
        self.of_one = of_one


def in_words(error: OSError) -> str:
    """What the system refused, as half a sentence; our own words where it was us."""
    if error.errno is None:
        return str(error)
    return f"{error.filename or 'a file'} cannot be read or written ({error.strerror})"
