import socket
import subprocess
import sys


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
