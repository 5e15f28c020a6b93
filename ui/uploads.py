"""The pictures that people gave this page: bytes in its memory, each for the tabs that were logged in when it came.

A picture has no file. What a browser later says about it is only a name; one that was not handed out to this very
session opens nothing, and every way to ask for too much gets the same sentence.
"""

import asyncio
import secrets
from dataclasses import dataclass, field

import gradio as gr

from ui.session import Session

KEPT_S = 1800.0  # then the picture has to be chosen again
LEAST_CHARGE = 1 << 16  # bytes that even an empty file counts for, so that their number is bounded too
A_KEY = 64 << 20  # bytes of all pictures that came with one key
IN_ALL = 256 << 20  # bytes; beyond, the oldest picture goes
UNKNOWN = "That picture is not here any more: choose it again."


@dataclass
class Upload:
    """A file's bytes, the tabs that may open it, and whose allowance it counts for."""

    content: bytes = field(repr=False)
    media_type: str
    tabs: set[str]
    key: str = field(repr=False)

    @property
    def charge(self) -> int:
        """Bytes that it counts for."""
        return max(len(self.content), LEAST_CHARGE)


class Uploads:
    """All of them, oldest first, by an unguessable name."""

    def __init__(self) -> None:
        self._kept: dict[str, Upload] = {}

    def keep(self, owners: list[Session], content: bytes, media_type: str) -> str:
        """The name of the new picture, which these sessions, all of one browser, may open for half an hour."""
        name = secrets.token_urlsafe(32)
        key = owners[-1].key
        self._kept[name] = Upload(content, media_type, {session.tab for session in owners}, key)
        self._forget_beyond(A_KEY, [name for name, upload in self._kept.items() if upload.key == key])
        self._forget_beyond(IN_ALL, list(self._kept))
        asyncio.get_running_loop().call_later(KEPT_S, self._kept.pop, name, None)
        return name

    def opened(self, session: Session, claim: object) -> bytes | None:
        """The picture's bytes, None where the claim is None; the first session to ask for a picture keeps it."""
        if claim is None:
            return None
        upload = self.seen([session], claim.get("path") if isinstance(claim, dict) else None)
        if upload is None:
            raise gr.Error(UNKNOWN, print_exception=False)
        upload.tabs = {session.tab}
        return upload.content

    def seen(self, sessions: list[Session], name: object) -> Upload | None:
        """The upload of that name, where one of these sessions may open it."""
        upload = self._kept.get(name) if isinstance(name, str) else None
        return upload if upload and not upload.tabs.isdisjoint(session.tab for session in sessions) else None

    def forget_of(self, tab: str | None) -> None:
        """Drops what only this tab could open."""
        for name in [name for name, upload in self._kept.items() if upload.tabs == {tab}]:
            del self._kept[name]

    def _forget_beyond(self, limit: int, names: list[str]) -> None:
        held = sum(self._kept[name].charge for name in names)
        for name in names:
            if held <= limit:
                return
            held -= self._kept.pop(name).charge
