"""What is reachable over the network: by strangers, by people who are logged in, and in another's name."""

import json
import threading
import time
from typing import Any

import pytest

from tests.ui.scripted_gateway import Scripted
from tests.ui.tab import Tab
from ui import page as page_module
from ui.page import _Streams

CLOSED = [
    *(("GET", path) for path in ("/docs", "/openapi.json", "/monitoring", "/monitoring/summary", "/pwa_icon")),
    *(("GET", f"/gradio_api/{path}") for path in ("deep_link", "runs", "heartbeat/x", "upload_progress")),
    *(("GET", f"/gradio_api/{path}") for path in ("proxy=http://127.0.0.1:9/", "stream/a/b/c/playlist.m3u8", "file/a")),
    *(("GET", f"/gradio_api/{path}") for path in ("startup-events", "queue/status", "token", "user", "call/ask/x")),
    *(("GET", f"/gradio_api/{path}") for path in ("openapi.json", "custom_component/a/client/b/c", "vibe-code")),
    *(("POST", f"/gradio_api/{path}") for path in ("component_server", "component_server/", "run/ask", "api/ask")),
    *(("POST", f"/gradio_api/{path}") for path in ("call/ask", "call/v2/ask", "reset", "stream/x", "stream/x/close")),
    *(("POST", f"/gradio_api/{path}") for path in ("process_recording", "run-history/connect", "vibe-edit")),
    *(("POST", path) for path in ("/login", "/", "/config")),
    *((method, "/gradio_api/queue/join") for method in ("GET", "PUT", "DELETE", "OPTIONS")),
]


@pytest.fixture
def url(scripted: tuple[str, Scripted]) -> str:
    return scripted[0]


@pytest.fixture
def amy(url: str) -> Tab:
    tab = Tab(url)
    assert "data" in tab.call("login", "amy+cat")
    return tab


def test_what_the_page_does_not_need_is_not_there(url: str, amy: Tab) -> None:
    for tab in (Tab(url), amy):
        params = {"session_hash": amy.name, "upload_id": "x"}
        found = {
            route: tab.http.request(*route, params=params, json={} if route[0] == "POST" else None).status_code
            for route in CLOSED
        }
        assert {route: status for route, status in found.items() if status != 404} == {}


def test_nobodys_question_is_shown_to_who_has_a_link(url: str, amy: Tab) -> None:
    assert "data" in amy.call("ask", "amy", None, "a question of a private kind")
    stranger = Tab(url)
    link = stranger.http.get("/gradio_api/deep_link", params={"session_hash": amy.name})
    assert link.status_code == 404
    shown = stranger.http.get("/", params={"deep_link": link.text}).text
    shown += stranger.http.get("/config", params={"deep_link": link.text}).text
    assert "private kind" not in shown


def test_a_tabs_name_alone_opens_nothing(url: str, amy: Tab, script: Scripted) -> None:
    thief = Tab(url)
    thief.name = amy.name
    script.piece_s = 0.2
    heard: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: heard.append(amy.call("ask", "amy", None, "What is it?")))
    asking.start()
    time.sleep(0.5)
    event = next(event for event in amy.config["dependencies"] if event["api_name"] == "ask")
    assert thief.http.get("/gradio_api/queue/data", params={"session_hash": amy.name}).status_code == 404
    cancel = {"session_hash": amy.name, "fn_index": event["id"], "event_id": "x"}
    assert thief.http.post("/gradio_api/cancel", json=cancel).status_code == 200
    assert "Log in" in thief.error("ask", "amy", None, "What is it?")
    thief.call("logout")
    asking.join()
    assert "data" in heard[0]
    assert "data" in amy.call("choose", "amy")


def test_strangers_push_nobody_out(url: str, amy: Tab, script: Scripted) -> None:
    """Gradio keeps the state of so many tabs and the messages of so many, and drops the oldest, whosever it is."""
    script.piece_s = 0.8
    heard: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: heard.append(amy.call("ask", "amy", None, "What is it?")))
    asking.start()
    strangers = Tab(url)
    for number in range(page_module.TABS + 50):
        strangers.name = f"stranger{number}"
        strangers.join("choose", "amy")
    asking.join()
    assert "data" in heard[0]
    assert "data" in amy.call("choose", "amy")


def test_a_stream_that_a_member_waits_for_is_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "TABS", 3)
    events = {"busy": {"event"}, "idle": set(), "stranger": {"event"}}
    streams = _Streams({"busy", "idle"}, events)
    for tab in ("busy", "idle", "stranger"):
        streams[tab] = tab
    streams["new"] = "new"
    assert list(streams) == ["busy", "stranger", "new"]
    streams["newer"] = "newer"
    assert list(streams) == ["busy", "new", "newer"]
    assert events == {"busy": {"event"}}


def test_a_body_is_small_and_json_and_names_its_tab(url: str) -> None:
    tab = Tab(url)
    path = "/gradio_api/queue/join"
    said = {
        413: {"content": json.dumps({"session_hash": "a", "data": ["x" * (1 << 17)]}).encode()},
        400: {"content": b"{"},
    }
    for status, sent in said.items():
        assert tab.http.post(path, **sent).status_code == status  # type: ignore[arg-type]
    assert tab.http.post(path, content=b"[" * 60_000).status_code == 400
    for name in (None, 5, "", "a.b", "a b", "x" * 65, ["a"], {"a": 1}):
        assert tab.http.post(path, json={"session_hash": name, "fn_index": 0, "data": []}).status_code == 400
    assert tab.http.get("/gradio_api/queue/data").status_code == 400


def test_a_tab_that_fetches_nothing_is_told_to_stop(url: str) -> None:
    tab = Tab(url)
    statuses = [tab.join("choose", "amy").status_code for _ in range(80)]
    assert set(statuses[:60]) == {200}
    assert set(statuses[-10:]) == {429}


def test_a_browsers_secret_is_its_own_and_not_for_scripts(url: str) -> None:
    first, second = Tab(url), Tab(url)
    assert first.http.cookies["fedtailor"] != second.http.cookies["fedtailor"]
    assert "set-cookie" not in first.http.get("/").headers  # it has one
    first.http.cookies.clear()
    assert "set-cookie" not in first.http.get("/theme.css").headers  # which a cache may keep
    given = first.http.get("/").headers
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(given["set-cookie"].split("; "))
    assert given["cache-control"] == "no-store"


def test_a_key_that_is_revoked_ends_the_log_in_with_a_sentence(amy: Tab, script: Scripted) -> None:
    script.revoked.add("amy+cat")
    said = "Your key is no longer valid: log out, and log in with another one."
    assert amy.error("ask", "amy", None, "What is it?") == said
    assert "Log in" in amy.error("ask", "amy", None, "What is it?")


def test_one_keys_log_ins_push_out_only_their_own(url: str, amy: Tab) -> None:
    tabs = [Tab(url) for _ in range(2)]
    assert "data" in tabs[0].call("login", "bob")
    many = tabs[1]
    for number in range(40):
        many.name = f"many{number}"
        assert "data" in many.call("login", "bob")
    assert "Log in" in tabs[0].error("choose", "bob")  # the oldest of its key
    assert "data" in many.call("choose", "bob")
    assert "data" in amy.call("choose", "amy")
