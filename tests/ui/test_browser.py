"""The page in a real browser, where one is installed."""

import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("websockets", reason="the browser is driven over a web socket, and websockets is not installed")

from tests.serve.live import LiveGateway
from tests.ui.browser import installed, opened

pytestmark = pytest.mark.skipif(installed() is None, reason="no Chromium or Chrome is installed")


def test_a_person_logs_in_asks_about_a_picture_and_leaves_no_trace(
    page: str, gateway: LiveGateway, picture: Path, tmp_path: Path
) -> None:
    key = gateway.key("ann", "cat")
    with opened(page) as seen:
        seen.type("Key", "wrong")
        seen.click("Log in")
        seen.wait_for_text("not known")
        seen.js("document.querySelector('input[type=password]').select()")
        seen.type("Key", key)
        seen.click("Log in")
        seen.wait_for_text("answers questions")
        seen.choose_file(picture)
        seen.wait_for("[...document.querySelectorAll('.picture img')].some(i => i.naturalWidth === 64)")
        seen.type("Question", "What is in the picture?")
        seen.click("Ask")
        seen.wait_for_text(f"ann@{gateway.store.live('ann').version}")
        seen.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
        kept = "document.documentElement.outerHTML + JSON.stringify([localStorage, sessionStorage, document.cookie])"
        assert key not in seen.js(kept)
        seen.click("Log out")
        seen.wait_for("!!document.querySelector('input[type=password]')")
        assert seen.js("document.querySelector('input[type=password]').value") == ""
        time.sleep(0.5)  # for a request that the log out may cause
        asked = {urlsplit(url).hostname for url in seen.requested if not url.startswith(("data:", "blob:"))}
        assert asked == {urlsplit(page).hostname}  # no font, script or count from anywhere else
