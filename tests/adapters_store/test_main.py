import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adapters_store.__main__ import main
from adapters_store.store import Store
from tests.adapters_store.artefacts import manifest, prompt_files


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "published")
    for value in (1.0, 2.0):
        store.publish(manifest(), prompt_files(value), {"value": value}, activate=True)
    return store


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_list_and_show_say_what_answers(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    live = store.live("amy").version
    code, out, _ = said(capsys, "--store", store.root, "list")
    header, line = out.splitlines()
    assert (code, header.split("\t")[:3], line.split("\t")[:3]) == (
        0,
        ["client", "live", "versions"],
        ["amy", live, "2"],
    )
    _, out, _ = said(capsys, "--store", store.root, "--json", "list")
    assert json.loads(out)[0]["live"] == live
    _, out, _ = said(capsys, "--store", store.root, "show", "amy", "--json")
    assert [row["state"] for row in json.loads(out)] == ["", "live"]
    _, out, _ = said(capsys, "--store", store.root, "show", "amy", live)
    assert f"version: {live}" in out
    assert "value: 2.0" in out


def test_switching_and_cleaning_up(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = store.versions("amy")
    assert said(capsys, "--store", store.root, "rollback", "amy")[0] == 0
    assert store.live("amy").version == first
    code, out, _ = said(capsys, "--store", store.root, "--json", "gc", "--keep", 0)
    assert (code, json.loads(out)) == (0, [f"amy@{second}"])


def test_verify_names_what_is_refused_and_exits_1(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--store", store.root, "verify")[0] == 0
    assert said(capsys, "--store", store.root, "verify", "amy", "--base-id", "f" * 16)[0] == 1
    live = store.live("amy").version
    (store.root / "amy" / live / "prompt.safetensors").write_bytes(b"")
    code, out, _ = said(capsys, "--store", store.root, "verify")
    assert code == 1
    assert f"amy@{live} is refused: file prompt.safetensors has 0 bytes" in out


def test_one_damaged_client_leaves_the_others_listed_and_verified(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    (store.root / "zoe").symlink_to("amy")
    code, out, _ = said(capsys, "--store", store.root, "--json", "list")
    assert (code, [row["client"] for row in json.loads(out)]) == (0, ["amy", "zoe"])
    assert "zoe is a link" in json.loads(out)[1]["problem"]
    code, out, _ = said(capsys, "--store", store.root, "--json", "verify")
    assert (code, [row["result"] == "sound" for row in json.loads(out)]) == (1, [True, True, False])
    assert "zoe is a link" in json.loads(out)[2]["result"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rollback", "bob"], "client 'bob' is not in the store"),
        (["show", "bob"], "client 'bob' has no version"),
        (["show", "../x"], "client id '../x' is not allowed"),
        (["activate", "amy", "0" * 16], "there is no such version"),
        (["activate", "amy", "0" * 16, "--canary", "5"], "canaries are not served yet"),
        (["activate", "amy", "0" * 16, "--canary", "0"], "canaries are not served yet"),
        (["gc", "--keep", "-1"], "keep is -1"),
        (["pull", "nowhere://x"], "cannot be opened"),
        (["pull", "file:///nowhere/at/all"], "mirror 'file:///nowhere/at/all' holds nothing"),
        (["push", "hf://datasets/nobody/nothing"], "mirror hf://datasets/nobody/nothing fails at "),
    ],
)
def test_a_refusal_is_one_sentence_and_exit_code_1(
    store: Store, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    code, out, err = said(capsys, "--store", store.root, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_push_and_pull_report_what_moved(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mirror = f"file://{tmp_path}/mirror"
    code, out, _ = said(capsys, "--store", store.root, "--json", "push", mirror)
    assert (code, len(json.loads(out)["copied"])) == (0, 2)
    assert said(capsys, "--store", tmp_path / "there", "pull", mirror)[0] == 0
    assert Store(tmp_path / "there").live("amy") == store.live("amy")


def test_listing_starts_quickly_and_without_torch(store: Store) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "adapters_store", "--store", str(store.root), "list"]
    started = time.monotonic()
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.monotonic() - started
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert not {"torch", "numpy", "transformers"} & imported
    assert seconds < 3.0  # 0.2 s on an idle machine; generous where others are busy


def test_a_terminal_gets_a_table(store: Store) -> None:
    screen, terminal = pty.openpty()
    subprocess.run([sys.executable, "-m", "adapters_store", "--store", store.root, "list"], stdout=terminal, check=True)
    assert "┃" in os.read(screen, 65536).decode()
    os.close(screen)
    os.close(terminal)


def test_a_dry_run_names_what_would_go_and_deletes_nothing(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.publish(manifest(), prompt_files(3.0), {}, activate=True)
    before = {path: path.read_bytes() for path in store.root.rglob("*.*") if path.is_file()}
    code, named, _ = said(capsys, "gc", "--store", store.root, "--json", "--keep", 0, "--dry-run")
    assert (code, json.loads(named)) == (0, [f"amy@{version}" for version in store.versions("amy")[:2]])
    assert {path: path.read_bytes() for path in store.root.rglob("*.*") if path.is_file()} == before
    assert said(capsys, "--store", store.root, "--json", "gc", "--keep", 0) == (0, named, "")
    assert len(store.versions("amy")) == 1


def test_options_may_come_before_or_after_the_command(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = said(capsys, "--store", store.root, "--json", "list")
    assert json.loads(expected[1])
    assert said(capsys, "list", "--json", "--store", store.root) == expected
    assert said(capsys, "--store", tmp_path / "other", "list", "--store", store.root, "--json") == expected
