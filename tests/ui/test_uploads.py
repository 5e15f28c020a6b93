"""The page opens what a session gave it, and nothing else, whatever a browser says."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
import pytest

from tests.serve.live import noise, png
from tests.ui.scripted_gateway import Scripted
from tests.ui.tab import Tab
from ui import uploads as uploads_module
from ui.session import Session
from ui.uploads import UNKNOWN, Uploads

FILE_DATA = {"_type": "gradio.FileData"}
PICTURE = png(noise(3))


@pytest.fixture
def url(scripted: tuple[str, Scripted]) -> str:
    return scripted[0]


def logged_in(url: str, key: str, browser: Tab | None = None) -> Tab:
    tab = Tab(url, browser)
    assert "data" in tab.call("login", key)
    return tab


def forged(tmp_path: Path, own: str, others: str) -> list[object]:
    """Claims to a picture that none of them opens."""
    on_disk, link = tmp_path / "a.png", tmp_path / "link.png"
    on_disk.write_bytes(PICTURE)
    link.symlink_to(on_disk)
    text = tmp_path / "a.txt"
    text.write_text("no picture")
    paths = [
        *(str(path) for path in (on_disk, link, text, tmp_path, tmp_path / "none.png", "/etc/passwd", "/dev/zero")),
        *(others, f"{own}/../{Path(others).name}", f"{own}/", f"./{own}", own[:-1], own + "\0", ""),
        *(f"file://{on_disk}", "http://127.0.0.1:9/a.png", "data:image/png;base64,AAAA"),
    ]
    bare: list[object] = [{"path": path} for path in paths]
    marked: list[object] = [{"path": path, "meta": FILE_DATA, "orig_name": "a.png"} for path in paths]
    odd: list[object] = [
        *({}, [], "", 0, 5, True, own, [own], [{"path": own, "meta": FILE_DATA}], {"url": own}),
        *({"path": odd, "meta": FILE_DATA} for odd in (None, 5, [own], {"path": own}, True)),
        *({"path": str(on_disk), "meta": meta} for meta in (None, 5, "gradio.FileData", [], {"_type": 5})),
        {"path": str(on_disk), "url": own, "meta": FILE_DATA},
        {"path": str(on_disk), "size": "large", "is_stream": True, "meta": FILE_DATA},
        {"video": {"path": str(on_disk), "meta": FILE_DATA}},
    ]
    return [*bare, *marked, *odd]


def test_only_what_the_same_session_uploaded_is_opened(url: str, script: Scripted, tmp_path: Path) -> None:
    amy, bob = logged_in(url, "amy+cat"), logged_in(url, "bob+cat")
    own, others = amy.uploaded(PICTURE), bob.uploaded(png(noise(4)))
    before = script.pictures
    said = {}
    for claim in forged(tmp_path, own, others):
        said[repr(claim)] = amy.error("ask", "amy", claim, "What is it?"), amy.error("classify", "cat", claim)
    assert {sentence for pair in said.values() for sentence in pair} == {UNKNOWN}
    assert script.pictures == before
    for claim in ({"path": own}, {"path": own, "meta": FILE_DATA, "orig_name": "a.png"}):
        assert "data" in amy.call("ask", "amy", claim, "What is it?")
        assert "data" in amy.call("classify", "cat", claim)
    assert script.pictures == before + 4


def test_a_picture_is_one_tabs_and_is_gone_with_its_log_in(url: str) -> None:
    first = logged_in(url, "cat")
    second = logged_in(url, "bob+cat", browser=first)
    early = first.uploaded(PICTURE)
    later = logged_in(url, "cat", browser=first)
    claim = {"path": early, "meta": FILE_DATA}
    assert later.error("classify", "cat", claim) == UNKNOWN  # it was not there when the picture came
    assert "data" in first.call("classify", "cat", claim)
    assert second.error("classify", "cat", claim) == UNKNOWN  # now it is the first one's
    first.call("logout")
    first.call("login", "cat")
    assert first.error("classify", "cat", claim) == UNKNOWN


def test_nobody_stores_anything_before_the_log_in_and_only_so_much_after(url: str) -> None:
    tab = Tab(url)
    assert tab.upload(PICTURE).status_code == 401
    assert Tab(url).http.post("/gradio_api/upload", content=b"x").status_code == 401
    tab.call("login", "cat")
    assert tab.upload(b"x" * (11 << 20)).status_code == 413
    assert tab.upload(b"x" * ((10 << 20) + 1)).status_code == 413
    several = [("files", (f"{i}.png", b"x")) for i in range(2)]
    assert tab.http.post("/gradio_api/upload", files=several).status_code == 400
    assert tab.http.post("/gradio_api/upload", files={"files": b"x"}, data={"more": "y"}).status_code == 400
    assert tab.http.post("/gradio_api/upload", content=b"x").status_code == 400

    def endless() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
        for _ in range(300):
            yield b"x" * (1 << 20)

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    with suppress(httpx.TransportError):  # where the connection is closed before the answer is read
        assert tab.http.post("/gradio_api/upload", content=endless(), headers=headers).status_code == 413
    assert "data" in tab.call("choose", "cat")


def test_the_preview_is_shown_to_the_browser_it_came_from_only(url: str, tmp_path: Path) -> None:
    amy, bob = logged_in(url, "amy"), logged_in(url, "bob")
    own = amy.uploaded(PICTURE)
    shown = amy.http.get(f"/gradio_api/file={own}")
    assert shown.content == PICTURE
    assert shown.headers["content-type"] == "image/png"
    assert "nosniff" in shown.headers["x-content-type-options"]
    (tmp_path / "a.png").write_bytes(PICTURE)
    for other in (bob, Tab(url)):
        assert other.http.get(f"/gradio_api/file={own}").status_code in (401, 404)
    for path in ("/etc/passwd", str(tmp_path / "a.png"), str(tmp_path), "http://127.0.0.1:9/a", own + "x"):
        answer = amy.http.get(f"/gradio_api/file={path}")
        assert (answer.status_code, PICTURE in answer.content, "root:" in answer.text) == (404, False, False)
    page = amy.http.post("/gradio_api/upload", files={"files": ("a.html", b"<script>1</script>", "text/html")}).json()[
        0
    ]
    assert amy.http.get(f"/gradio_api/file={page}").headers["content-type"] == "application/octet-stream"


def test_pictures_are_bounded_by_key_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    charge = uploads_module.LEAST_CHARGE
    monkeypatch.setattr(uploads_module, "A_KEY", 4 * charge)
    monkeypatch.setattr(uploads_module, "IN_ALL", 6 * charge)

    def held(uploads: Uploads, session: Session, names: list[str]) -> list[bool]:
        return [uploads.seen([session], name) is not None for name in names]

    async def fill() -> None:
        uploads = Uploads()
        sessions = [Session(f"tab{i}", f"key{i}", ("cat",)) for i in range(3)]
        first = [uploads.keep([sessions[0]], b"", "image/png") for _ in range(6)]
        assert held(uploads, sessions[0], first) == [False, False, True, True, True, True]
        second = [uploads.keep([sessions[1]], b"x" * charge, "image/png") for _ in range(2)]
        assert held(uploads, sessions[0], first[2:]) == [True] * 4
        third = uploads.keep([sessions[2]], b"x", "image/png")
        assert held(uploads, sessions[0], first[2:]) == [False, True, True, True]  # the oldest made room
        assert held(uploads, sessions[1], second) == [True, True]
        assert uploads.opened(sessions[2], {"path": third}) == b"x"

    asyncio.run(fill())


def test_a_picture_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads_module, "KEPT_S", 0.01)

    async def wait() -> None:
        uploads, session = Uploads(), Session("tab", "key", ("cat",))
        claim = {"path": uploads.keep([session], PICTURE, "image/png")}
        assert uploads.opened(session, claim) == PICTURE
        await asyncio.sleep(0.05)
        with pytest.raises(gr.Error, match="choose it again"):
            uploads.opened(session, claim)

    asyncio.run(wait())
