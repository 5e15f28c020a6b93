"""The committed results of a study are written over only where that is said."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.federated import main
from bench.results_folder import COMMITTED, add_out, kept
from tests.train.small import yaml_file


def test_results_go_where_out_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = yaml_file(tmp_path, "promptfl", evaluate={"references": []})
    committed = {path.name: path.read_bytes() for path in COMMITTED.iterdir()}
    main([str(config), "--seeds", "0", "--out", str(tmp_path / "results"), "--name", "promptfl_scenes"])
    summary = json.loads((tmp_path / "results" / "promptfl_scenes.json").read_text())
    assert summary["seeds"] == [0]
    assert summary["arguments"] == []
    assert {path.name: path.read_bytes() for path in COMMITTED.iterdir()} == committed
    assert "| promptfl_scenes |" in capsys.readouterr().out


HELP = """
from bench import ataf, connectors, gateway, merging, pilot, privacy, prompts
for bench in (ataf, connectors, gateway, merging, pilot, privacy, prompts):
    try:
        bench.main(["table", "--help"] if bench is prompts else ["--help"])
    except SystemExit:
        print(bench.__name__, "ends")
"""


def test_every_benchmark_writes_elsewhere_by_default() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    *helps, rest = re.split(r"bench\.\w+ ends\n", done.stdout)
    assert len(helps) == 7
    assert rest == ""
    for text in helps:
        assert "--record" in text
        assert "(default: runs/bench)" in " ".join(text.split())


def test_an_earlier_result_is_this_folders_or_the_committed(tmp_path: Path) -> None:
    assert kept(tmp_path, "pilot_tune.json") == COMMITTED / "pilot_tune.json"
    (tmp_path / "pilot_tune.json").write_text("{}")
    assert kept(tmp_path, "pilot_tune.json") == tmp_path / "pilot_tune.json"


def test_committed_results_are_written_only_where_that_is_said() -> None:
    parser = argparse.ArgumentParser()
    add_out(parser)
    assert parser.parse_args([]).out != COMMITTED
    assert parser.parse_args(["--record"]).out == COMMITTED
    with pytest.raises(SystemExit):
        parser.parse_args(["--record", "--out", "elsewhere"])
