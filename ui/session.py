"""Who is using this page: kept in the server's memory, tied to one browser session, never sent to the browser."""

import html
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import gradio as gr

from ui.gateway import GatewayError

LASTS_S = 8 * 3600.0  # a working day; then the key has to be given again


@dataclass(frozen=True)
class Session:
    """A person's key and the clients it allows, as the gateway said at log-in."""

    key: str = field(repr=False)
    clients: tuple[str, ...]


def permitted(session: Session | None, client: object) -> tuple[Session, str]:
    """The session and the client, once the session is found to allow it; whatever the page's drop-down says."""
    if session is None:
        raise gr.Error("Log in with your key first.", print_exception=False)
    if not isinstance(client, str) or client not in session.clients:
        named = html.escape(str(client)[:80], quote=False)
        raise gr.Error(f"Your key does not allow client '{named}'.", print_exception=False)
    return session, client


@contextmanager
def spoken() -> Iterator[None]:
    """Shows a GatewayError raised inside as its sentence."""
    try:
        yield
    except GatewayError as error:
        raise shown(error) from error


def shown(error: GatewayError) -> gr.Error:
    """The error as the page shows it, which is as HTML: what somebody typed, and it quotes, must not be markup."""
    return gr.Error(html.escape(str(error), quote=False), print_exception=False)
