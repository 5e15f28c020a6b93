"""A run folder belongs to one run at a time, and says what the run is and what to do next; a finished one can go on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from adapters_store.paths import PROJECT_ROOT
from adapters_store.store import Store
from tests.train.small import config, yaml_file
from train.fed import main


def arguments(folder: Path, /, **sections: dict[str, Any]) -> list[str]:
    """A run of promptfl into ``folder/run`` with these sections changed, publishing beside it."""
    publish = {"enabled": True, "store": str(folder / "store")}
    path = yaml_file(folder, "promptfl", publish=publish, **sections)
    return ["--config", str(path), "--out", str(folder / "run")]


def test_a_live_run_is_neither_resumed_nor_run_over_and_ends_as_if_nobody_had_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, run = arguments(tmp_path), tmp_path / "run"
    command = [sys.executable, str(PROJECT_ROOT / "train" / "fed.py"), *argv]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    in_use = f"{run} is being written by another run (process {running.pid}); wait for it to end\n"
    try:
        for appears, option, attempt in (
            (".lock", "--out", argv),
            ("config.json", "--resume", ["--resume", str(run)]),
        ):
            while not (run / appears).exists() or not (run / appears).stat().st_size:
                assert running.poll() is None
                time.sleep(0.01)
            os.kill(running.pid, signal.SIGSTOP)  # it is alive for as long as this test looks
            assert main(attempt) == 2
            assert capsys.readouterr().err == f"train/fed.py: {option}: {in_use}"
            os.kill(running.pid, signal.SIGCONT)
        _, errors = running.communicate(timeout=120)
        assert running.returncode == 0, errors
    finally:
        running.kill()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    turns = [(line["round"], line["client"]) for line in map(json.loads, lines) if line["phase"] == "train"]
    assert len(turns) == len(set(turns)) == 6
    assert main(argv) == 2
    assert f"--out: {run} already holds a run; continue it with --resume {run}" in capsys.readouterr().err


def test_a_run_that_cannot_start_leaves_no_folder_and_no_lock(tmp_path: Path) -> None:
    argv = [*arguments(tmp_path), "--base.path", str(tmp_path / "nowhere")]
    for _ in range(2):
        assert main(argv) == 2
        assert not (tmp_path / "run").exists()


def test_a_run_says_who_takes_part_where_it_is_and_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, evaluate={"references": []})) == 0
    said = capsys.readouterr().out.splitlines()
    assert f"run folder: {tmp_path / 'run'}" in said
    about = next(line for line in said if "client-00" in line)
    examples = config("promptfl").data
    assert f"{20} training, {examples.val_per_client} validation, {examples.test_per_client} test" in about
    assert "classify" in about
    assert f"next: python -m serve --store {tmp_path / 'store'}" in said
    assert f"more rounds: accelerate launch train/fed.py --resume {tmp_path / 'run'} --federation.rounds 4" in said


def outcome(folder: Path) -> Any:
    """What a run published, scored and logged, but for its seconds."""
    versions = json.loads((folder / "run" / "versions.json").read_text())
    for client, version in versions.items():
        Store(folder / "store").verify(client, version)
    results = json.loads((folder / "run" / "results.json").read_text())
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    for timed in (results, *lines):
        timed.pop("seconds", None)
    return versions, results, lines


def test_a_finished_run_goes_on_for_more_rounds_with_the_bits_of_one_that_had_them_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rounds in (("short", 1), ("long", 3)):
        (tmp_path / name).mkdir()
        assert main(arguments(tmp_path / name, federation={"rounds": rounds, "threads": 1})) == 0
    short = tmp_path / "short" / "run"
    assert main(["--resume", str(short), "--federation.rounds", "3"]) == 0
    assert outcome(tmp_path / "short") == outcome(tmp_path / "long")
    assert json.loads((short / "config.json").read_text())["federation"]["rounds"] == 3
    assert main(["--resume", str(short)]) == 0  # as the run of three rounds that it now is
    assert outcome(tmp_path / "short") == outcome(tmp_path / "long")
    capsys.readouterr()
    assert main(["--resume", str(short), "--federation.rounds", "2"]) == 2
    assert "federation.rounds: found 2; the run in " in capsys.readouterr().err
    assert main(["--resume", str(short), "--client.lr", "1"]) == 2
    assert "only --federation.rounds may be given with it" in capsys.readouterr().err


def test_noise_that_was_chosen_for_so_many_rounds_does_not_cover_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private = {"dp": {"clip_norm": 1.0, "target_epsilon": 8.0, "delta": 0.01}}
    changed = {"client": {"clip_norm": None}, "evaluate": {"references": []}, "federation": {"rounds": 1, "threads": 1}}
    assert main(arguments(tmp_path, privacy=private, **changed)) == 0
    assert "more rounds" not in capsys.readouterr().out
    assert main(["--resume", str(tmp_path / "run"), "--federation.rounds", "2"]) == 2
    assert "privacy.dp.target_epsilon: its noise was chosen for 1 round" in capsys.readouterr().err
