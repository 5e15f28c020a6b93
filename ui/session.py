"""Who is using this page: kept in the server's memory, by browser and tab, never sent to the browser."""

import asyncio
import html
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import gradio as gr

from ui.gateway import GatewayError, KeyRefusedError

LASTS_S = 8 * 3600.0  # a working day; then the key has to be given again
TABS_A_KEY = 32  # open at once; with one more, the key's oldest is logged out, never another key's


@dataclass(frozen=True)
class Session:
    """A person's key and the clients it allows, as the gateway said at log-in; ``tab`` as the gate names it."""

    tab: str
    key: str = field(repr=False)
    clients: tuple[str, ...]


class Sessions:
    """Everybody who is logged in. Only who has shown a key takes a place here, so no stranger can push anyone out."""

    def __init__(self) -> None:
        self._open: dict[str, Session] = {}

    def open(self, tab: str | None, key: str, clients: list[str]) -> None:
        """Logs the tab in, until it logs out or the day is over."""
        if tab is None:
            raise gr.Error("This page was opened in a way that it cannot remember.", print_exception=False)
        self._open.pop(tab, None)
        same = [session for session in self._open.values() if session.key == key]
        for session in same[: len(same) + 1 - TABS_A_KEY]:
            self.close(session.tab)
        session = self._open[tab] = Session(tab, key, tuple(clients))
        asyncio.get_running_loop().call_later(LASTS_S, self._expire, session)

    def close(self, tab: str | None) -> None:
        """Logs the tab out; nothing of it is left."""
        if tab is not None:
            self._open.pop(tab, None)

    def of(self, request: gr.Request) -> Session | None:
        """Who sent the request, or None for a stranger."""
        return self._open.get(request.session_hash or "")

    def __contains__(self, tab: object) -> bool:
        return tab in self._open

    def of_browser(self, prefix: str) -> list[Session]:
        """The sessions in one browser's tabs, whose names all start with ``prefix``."""
        return [session for tab, session in self._open.items() if tab.startswith(prefix)]

    def permitted(self, request: gr.Request, client: object) -> tuple[Session, str]:
        """The session and the client, once the session is found to allow it; whatever the page's drop-down says."""
        session = self.of(request)
        if session is None:
            raise gr.Error("Log in with your key first.", print_exception=False)
        if not isinstance(client, str) or client not in session.clients:
            named = html.escape(str(client)[:80], quote=False)
            raise gr.Error(f"Your key does not allow client '{named}'.", print_exception=False)
        return session, client

    @contextmanager
    def spoken(self, session: Session | None = None) -> Iterator[None]:
        """Shows a GatewayError raised inside as its sentence; a session whose key the gateway refuses is over."""
        try:
            yield
        except KeyRefusedError as error:
            if session is None:
                raise _shown(str(error)) from error
            self.close(session.tab)
            raise _shown("Your key is no longer valid: log out, and log in with another one.") from error
        except GatewayError as error:
            raise _shown(str(error)) from error

    def _expire(self, session: Session) -> None:
        if self._open.get(session.tab) is session:
            self.close(session.tab)


def _shown(sentence: str) -> gr.Error:
    """The sentence as the page shows it, which is as HTML: what somebody typed, and it quotes, must not be markup."""
    return gr.Error(html.escape(sentence, quote=False), print_exception=False)
