"""What cannot be done ends with a sentence and a status, never with a traceback, and before training where it can."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from adapters_store.paths import PROJECT_ROOT
from tests.train.federation.test_processes import ACCELERATE, TWO
from tests.train.small import CLIP, yaml_file
from train.fed import main

ONE = ["--quiet", "--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
FED = str(PROJECT_ROOT / "train" / "fed.py")


def refused(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    """The one sentence that these arguments are refused with."""
    assert main([str(argument) for argument in argv]) == 2
    error = capsys.readouterr().err
    assert error.startswith("train/fed.py: ")
    assert error.count("\n") == 1
    return error


def asked(folder: Path) -> Path:
    """A configuration of a CLIP method over questions, in a folder of one's own."""
    from PIL import Image

    for split in ("train", "test"):
        (folder / "data" / "ann").mkdir(parents=True, exist_ok=True)
        colour = (200, 10, 10) if split == "train" else (10, 200, 10)
        Image.new("RGB", (64, 64), colour).save(folder / "data" / "ann" / f"{split}.png")
        line = f'{{"image": "{split}.png", "question": "is it red?", "answer": "yes"}}\n'
        (folder / "data" / "ann" / f"{split}.jsonl").write_text(line)
    path = folder / "asked.yaml"
    path.write_text(yaml.safe_dump({**CLIP, "data": {"name": "folder", "path": str(folder / "data")}}))
    return path


def test_a_method_for_classes_refuses_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "--config", asked(tmp_path), "--out", tmp_path / "run")
    assert "method.name: found 'promptfl', which sorts images into classes, but ann has questions" in error
    assert "fedit, pilot" in error
    assert not (tmp_path / "run").exists()


def test_a_split_without_examples_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = yaml_file(tmp_path, "promptfl", data={"val_per_client": 0})
    error = refused(capsys, "--config", path, "--out", tmp_path / "run", "--evaluate.split", "val")
    assert "evaluate.split: found 'val', but client-00, client-01, client-02 have no example in it" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "more", "sentence"),
    [
        (b"\xff\xfe\x00", (), "is not a text in UTF-8"),
        (b"a: b: c\n", (), "is not YAML"),
        (b"method: promptfl\n", ("--method.name", "coop"), "method: found 'promptfl'; a section of fields is needed"),
        (b"client: 3\n", ("--client.lr", "1"), "client: found 3; a section of fields is needed, as client: {lr: …}"),
        (b"{}", ("--data.styles", "[cartoon"), "data.styles: '[cartoon' is not YAML"),
    ],
)
def test_files_and_options_that_are_no_configuration(
    content: bytes, more: tuple[str, ...], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.yaml").write_bytes(content)
    assert main(["--config", str(tmp_path / "x.yaml"), *more]) == 2
    assert sentence in capsys.readouterr().err


def test_an_output_that_is_a_file_or_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = yaml_file(tmp_path, "promptfl")
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        assert f"--out: {out} is, or is in, a file; name a folder" in refused(capsys, "--config", path, "--out", out)
    assert (tmp_path / "file").read_text() == ""
    error = refused(capsys, "--config", path, "--out", "/proc/run")  # root too may make nothing there
    assert "--out: /proc/run cannot be written (" in error


FULL = """
import resource, signal, sys
from train.fed import main
from train.federation.log import RunLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
combined = RunLog.combined
def full(*arguments):
    combined(*arguments)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # every write fails, as on a full disk
RunLog.combined = full
sys.exit(main(sys.argv[1:]))
"""


def test_a_full_disk_ends_in_a_sentence_and_the_run_can_go_on(tmp_path: Path) -> None:
    """What one process alone may meet, any of them says."""
    argv = ["--config", str(yaml_file(tmp_path, "promptfl")), "--out", str(tmp_path / "run")]
    ran = subprocess.run(
        [sys.executable, "-c", FULL, *argv],
        capture_output=True,
        text=True,
        cwd=PROJECT_ROOT,
        env=os.environ | {"RANK": "1"},
    )
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("train/fed.py (process 1): ")
    assert f"(File too large); go on with --resume {tmp_path / 'run'}" in ran.stderr
    assert main(["--resume", str(tmp_path / "run")]) == 0


def as_from_a_terminal() -> None:
    """In the child, before it starts: Ctrl-C is heard, also where these tests run in the background of a script."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_run_says_how_to_go_on_in_one_line(tmp_path: Path) -> None:
    argv = ["--config", str(yaml_file(tmp_path, "promptfl")), "--out", str(tmp_path / "run")]
    running = subprocess.Popen(
        [sys.executable, FED, *argv], stderr=subprocess.PIPE, text=True, preexec_fn=as_from_a_terminal
    )
    try:
        while not (tmp_path / "run" / "exchange").exists():
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 128 + signal.SIGINT
    assert errors == f"train/fed.py: interrupted; go on with --resume {tmp_path / 'run'}\n"


def test_interrupted_before_it_began(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, FED, "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=as_from_a_terminal,
    )
    try:
        while "pydantic_core" not in Path(f"/proc/{running.pid}/maps").read_text():
            time.sleep(0.005)  # until it is in the midst of its imports, which take seconds
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 128 + signal.SIGINT
    assert errors == b"train/fed.py: interrupted\n"


@pytest.mark.parametrize(("launcher", "quiet"), [(ONE, True), (TWO, False)])
def test_launched_by_accelerate_a_refusal_is_said_once(launcher: list[str], quiet: bool, tmp_path: Path) -> None:
    """accelerate adds a traceback of its own where it starts several processes."""
    argv = [FED, "--config", str(yaml_file(tmp_path, "promptfl")), "--base.path", str(tmp_path / "nowhere")]
    command = [ACCELERATE, "launch", *launcher, *argv, "--out", str(tmp_path / "run")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode != 0
    said = [line for line in ran.stderr.splitlines() if line.startswith("train/fed.py: ")]
    assert len(said) == 1, ran.stderr
    assert ran.stderr.count("\n") == 1 or not quiet


def test_an_aggregator_that_needs_more_clients_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = yaml_file(tmp_path, "promptfl", method={"aggregator": {"rule": "multi_krum"}})
    assert main(["--config", str(path), "--out", str(tmp_path / "run")]) == 2
    assert "found 'multi_krum', which needs 5 clients in a round; here are 3" in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()
