"""A headless Chromium, driven over its own debugging protocol: type, click, choose a file, look."""

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_S = 30.0


def installed() -> str | None:
    """The path of a Chromium or Chrome on this machine, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One open page. ``requested`` holds every URL the page has asked for."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.requested: list[str] = []

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=WAIT_S))
            if message.get("method") == "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])
            if message.get("id") == number:
                assert "error" not in message, message["error"]
                result: dict[str, Any] = message["result"]
                return result

    def js(self, expression: str) -> Any:
        """What the expression is in the page, by value."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Waits until the expression is true in the page, and returns it."""
        end = time.monotonic() + WAIT_S
        while not (found := self.js(expression)):
            assert time.monotonic() < end, f"not within {WAIT_S} s: {expression}\n{self.text()}"
            time.sleep(0.05)
        return found

    def text(self) -> str:
        """The text a person sees."""
        return str(self.js("document.body.innerText"))

    def wait_for_text(self, text: str) -> None:
        """Waits until a person sees the text, on the page or in a field."""
        fields = "[...document.querySelectorAll('textarea,input')].map(e => e.value).join('\\n')"
        self.wait_for(f"(document.body?.innerText + '\\n' + {fields}).includes({json.dumps(text)})")

    def type(self, label: str, text: str) -> None:
        """Puts text into the field of that label as a keyboard would."""
        field = f"[...document.querySelectorAll('label')].find(l => l.innerText.trim().startsWith({json.dumps(label)}))"
        self.wait_for(f"!!{field}")
        self.js(f"{field}.querySelector('input,textarea').focus()")
        self.call("Input.insertText", text=text)

    def click(self, button: str) -> None:
        """Clicks the visible button with exactly that text."""
        found = (
            "[...document.querySelectorAll('button')]"
            f".find(b => b.innerText.trim() === {json.dumps(button)} && b.offsetParent !== null)"
        )
        self.wait_for(f"!!{found}")
        self.js(f"{found}.click()")

    def choose_file(self, path: Path) -> None:
        """Gives the page's file field that file."""
        self.wait_for("!!document.querySelector('input[type=file]')")
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector="input[type=file]")["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def screenshot(self, path: Path) -> None:
        """Saves what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def opened(url: str, width: int = 1100, height: int = 760) -> Iterator[Page]:
    """A fresh browser profile on that address; the browser ends with the block."""
    program = installed()
    assert program is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command = [
            program,
            "--disable-background-networking",
            *options,
            f"--window-size={width},{height}",
            f"--user-data-dir={profile}",
        ]
        with subprocess.Popen(
            [*command, "--remote-debugging-port=0", "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as browser:
            try:
                with connect(_page_address(Path(profile)), max_size=None, open_timeout=WAIT_S) as socket:
                    page = Page(socket)
                    for domain in ("Network", "Page", "DOM", "Runtime"):
                        page.call(f"{domain}.enable")
                    page.call("Page.navigate", url=url)
                    yield page
            except ConnectionClosed as error:
                raise AssertionError("the browser ended") from error
            finally:
                browser.terminate()


def _page_address(profile: Path) -> str:
    """The debugging address of the first tab, which Chromium writes into its profile once it listens."""
    import httpx

    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        port_file = profile / "DevToolsActivePort"
        if port_file.exists() and (lines := port_file.read_text().splitlines()):
            tabs = httpx.get(f"http://127.0.0.1:{lines[0]}/json", timeout=WAIT_S).json()
            for tab in tabs:
                if tab["type"] == "page":
                    return str(tab["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise AssertionError(f"the browser did not start within {WAIT_S} s")
