"""accelerate launch: two processes publish the same bits as one, and a wrong number of processes is an error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from adapters_store.paths import PROJECT_ROOT
from tests.train.small import yaml_file

ACCELERATE = str(Path(sys.executable).parent / "accelerate")
TWO = ["--config_file", str(PROJECT_ROOT / "train" / "configs" / "accelerate" / "cpu2.yaml")]


def launch(folder: Path, method: str, launcher: list[str], processes: int) -> subprocess.CompletedProcess[str]:
    publish = {"enabled": True, "store": str(folder / "store")}
    path = yaml_file(
        folder, method, publish=publish, federation={"processes": processes}, evaluate={"references": ["local"]}
    )
    script = str(PROJECT_ROOT / "train" / "fed.py")
    command = [ACCELERATE, "launch", *launcher, script, "--config", str(path), "--out", str(folder / "run")]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


@pytest.mark.parametrize("method", ["promptfl", "fedit"])
def test_two_processes_publish_the_same_bits_as_one(method: str, tmp_path: Path) -> None:
    versions = []
    for name, launcher, count in (("one", ["--num_processes", "1"], 1), ("two", TWO, 2)):
        folder = tmp_path / name
        folder.mkdir()
        done = launch(folder, method, launcher, count)
        assert done.returncode == 0, done.stderr[-2000:]
        versions.append(json.loads((folder / "run" / "versions.json").read_text()))
    assert versions[0] == versions[1]
    assert len(set(versions[0].values())) == len(versions[0])


def test_a_world_of_another_size_is_an_error(tmp_path: Path) -> None:
    done = launch(tmp_path, "promptfl", ["--num_processes", "1"], 2)
    assert done.returncode != 0
    assert "federation.processes: 2 asked for, but accelerate started 1" in done.stderr
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "store").exists()
