"""A browser's tab without the browser: the requests as they go over the wire, forged where a test wants them so."""

import json
import secrets
from typing import Any

import httpx


class Tab:
    """One session of one browser, which keeps cookies; ``browser`` is another tab whose browser it shares."""

    def __init__(self, url: str, browser: "Tab | None" = None) -> None:
        self.name = secrets.token_hex(6)
        self.http = browser.http if browser else httpx.Client(base_url=url, timeout=20)
        self.config = self.http.get("/config").json()
        self._states = {part["id"] for part in self.config["components"] if part["type"] == "state"}

    def join(self, api_name: str, *values: object) -> httpx.Response:
        """Starts an event and does not wait for it."""
        event = next(event for event in self.config["dependencies"] if event["api_name"] == api_name)
        given = list(values)
        for position, component in enumerate(event["inputs"]):
            if component in self._states:
                given.insert(position, None)
        body = {"data": given, "fn_index": event["id"], "session_hash": self.name}
        return self.http.post("/gradio_api/queue/join", json=body)

    def call(self, api_name: str, *values: object) -> dict[str, Any]:
        """How the event ended: its ``data``, or its ``error``."""
        self.join(api_name, *values).raise_for_status()
        params = {"session_hash": self.name}
        ended: dict[str, Any] = {}
        with self.http.stream("GET", "/gradio_api/queue/data", params=params) as events:
            for line in events.iter_lines():
                message = json.loads(line.removeprefix("data: ")) if line else {}
                if message.get("msg") == "process_completed":
                    ended = message["output"]
        return ended

    def error(self, api_name: str, *values: object) -> str:
        """The sentence in which the event was refused."""
        ended = self.call(api_name, *values)
        assert "error" in ended, ended
        return str(ended["error"])

    def upload(self, content: bytes, name: str = "a.png") -> httpx.Response:
        """Sends a file as the page does."""
        return self.http.post("/gradio_api/upload", files={"files": (name, content, "image/png")})

    def uploaded(self, content: bytes) -> str:
        """What the page calls a file that it has taken."""
        path: str = self.upload(content).raise_for_status().json()[0]
        return path
