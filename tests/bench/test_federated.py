"""The committed results of a study are written over only where that is said."""

import argparse
import json
from pathlib import Path

import pytest

from bench.federated import main
from bench.results_folder import COMMITTED, add_out
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


def test_committed_results_are_written_only_where_that_is_said() -> None:
    parser = argparse.ArgumentParser()
    add_out(parser)
    assert parser.parse_args([]).out != COMMITTED
    assert parser.parse_args(["--record"]).out == COMMITTED
    with pytest.raises(SystemExit):
        parser.parse_args(["--record", "--out", "elsewhere"])
