import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.ui.live import running_page


def ui(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ui", *options], capture_output=True, text=True, timeout=60)


def test_help_documents_every_option() -> None:
    shown = ui("--help")
    assert shown.returncode == 0
    for option in ("--gateway", "--host", "--port", "--timeout-s", "--max-upload-mb"):
        assert option in shown.stdout


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = ui("--port", str(taken.getsockname()[1]))
    assert ran.returncode == 1
    assert "error: cannot listen on port" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_wrong_option_is_a_sentence() -> None:
    for options, named in (
        (["--gateway", "here"], "gateway"),
        (["--port", "70000"], "port"),
        (["--colour", "x"], "colour"),
    ):
        ran = ui(*options)
        assert ran.returncode != 0
        assert named in ran.stderr
        assert "Traceback" not in ran.stderr


def test_uploads_are_for_this_user_only_and_do_not_outlive_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with running_page("http://127.0.0.1:9") as url:
        uploaded = httpx.post(f"{url}/gradio_api/upload", files={"files": ("a.png", b"a picture", "image/png")})
        assert Path(uploaded.json()[0]).read_bytes() == b"a picture"
        (private,) = tmp_path.glob("fedtailor-ui-*")
        assert uploaded.json()[0].startswith(f"{private}{os.sep}")
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        too_large = httpx.post(f"{url}/gradio_api/upload", files={"files": ("b.png", b"x" * (11 << 20), "image/png")})
        assert too_large.status_code == 413
    assert not list(tmp_path.glob("fedtailor-ui-*"))
