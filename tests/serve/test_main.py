"""The command line: keys, and settings that cannot be."""

import subprocess
import sys
from pathlib import Path

import pytest

from adapters_store.paths import PROJECT_ROOT
from serve.__main__ import main
from serve.http.auth import Keys


def test_keys_are_added_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def keys(*words: str) -> str:
        assert main(["keys", "--store", str(tmp_path), *words]) == 0
        return capsys.readouterr().out.strip()

    key = keys("add", "ann", "bob")
    admin = keys("add", "--admin")
    assert Keys(tmp_path).access(key).clients == {"ann", "bob"}
    assert Keys(tmp_path).access(admin).admin
    lines = keys("list").splitlines()
    assert "ann bob" in lines[0]
    assert "admin" in lines[1]
    assert key not in "".join(lines)
    assert "removed" in keys("remove", lines[0].split()[0])
    assert len(keys("list").splitlines()) == 1


@pytest.mark.parametrize("words", [["--store", "X", "add", "ann"], ["add", "ann", "--store", "X"]])
def test_the_store_is_named_before_or_after(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["keys", *(str(tmp_path) if word == "X" else word for word in words)]) == 0
    assert Keys(tmp_path).access(capsys.readouterr().out.strip()).allows("ann")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["keys", "add"], "at least one client"),
        (["keys", "add", "../x"], "not allowed"),
        (["keys", "remove", "abc"], "0 keys"),
        (["run", "--base", "/nowhere"], "--base: base '/nowhere' is no folder"),
        (["--max-lora-rank", "7"], "--max-lora-rank"),
        (["--port", "0"], "--port"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], reason: str
) -> None:
    monkeypatch.setenv("FEDTAILOR_STORE", str(tmp_path))
    assert main(words) == 1
    error = capsys.readouterr().err.strip()
    assert reason in error
    assert "\n" not in error


def test_every_option_is_documented() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "serve", "--help"], cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    for option in ("--store", "--base", "--max-wait-ms", "--engine-args"):
        assert option in done.stdout
