import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.serve.live import free_port, noise, png
from tests.ui import scripted_gateway
from tests.ui.live import running_page
from tests.ui.tab import Tab


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


def test_nothing_that_is_uploaded_reaches_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with scripted_gateway.running() as gateway, running_page(gateway.url) as url:
        (private,) = tmp_path.glob("fedtailor-ui-*")
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        tab = Tab(url)
        tab.call("login", "amy+cat")
        claim = {"path": tab.uploaded(png(noise(3))), "meta": {"_type": "gradio.FileData"}}
        assert "data" in tab.call("ask", "amy", claim, "What is it?")
        assert "data" in tab.call("classify", "cat", claim)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not list(tmp_path.glob("fedtailor-ui-*"))


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_and_quietly_while_somebody_waits_for_an_answer(asked: signal.Signals) -> None:
    with scripted_gateway.running() as gateway:
        gateway.piece_s = 5.0
        command = [sys.executable, "-m", "ui", "--gateway", gateway.url, "--port", str(free_port())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as page:
            assert page.stdout is not None
            url = page.stdout.readline().split()[3]
            tab = Tab(url)
            tab.call("login", "amy")
            waiting = threading.Thread(target=lambda: suppressed(lambda: tab.call("ask", "amy", None, "What is it?")))
            waiting.start()
            while not gateway.asked:
                waiting.join(0.05)
            page.send_signal(asked)
            began = time.monotonic()
            _, complaints = page.communicate(timeout=20)
            assert time.monotonic() - began < 8
            assert (page.returncode, complaints) == (0, "")
            waiting.join()


def suppressed(act: Callable[[], object]) -> None:
    with suppress(httpx.HTTPError):
        act()
