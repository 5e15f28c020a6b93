"""What a run writes is for nobody but its user, whatever the umask says."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.train.small import config, federation
from train.federation.checkpoint import Checkpoints
from train.models.feature_cache import FeatureCache
from train.run.setup import claim_folder


@pytest.fixture(autouse=True)
def _nothing_masked() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(root: Path) -> list[str]:
    return [str(path) for path in (root, *root.rglob("*")) if path.stat().st_mode & 0o077]


def test_the_states_of_clients_are_private(clip: Any, tmp_path: Path) -> None:
    federation(config("promptfl"), clip, tmp_path / "run")[0].run()
    states = [path for path in (tmp_path / "run").rglob("*") if path.suffix in (".safetensors", ".json")]
    assert {"checkpoints", "artefacts"} <= {path.relative_to(tmp_path / "run").parts[0] for path in states}
    assert [path for path in states if path.stat().st_mode & 0o077] == []
    folders = [path for path in (tmp_path / "run").rglob("*") if path.is_dir()]
    assert [path for path in folders if path.stat().st_mode & 0o077] == []


def test_a_staged_state_is_copied_privately(tmp_path: Path) -> None:
    (tmp_path / "amy").write_bytes(b"")
    (tmp_path / "amy").chmod(0o644)
    Checkpoints(tmp_path / "checkpoints").commit(1, {}, {}, {"amy": tmp_path / "amy"})
    assert open_to_others(tmp_path / "checkpoints") == []


def test_a_run_folder_is_private_and_an_older_one_is_closed(tmp_path: Path) -> None:
    claim_folder(tmp_path / "runs" / "new", config("promptfl"))
    assert (tmp_path / "runs" / "new").stat().st_mode & 0o777 == 0o700
    old = tmp_path / "old" / "checkpoints"
    old.mkdir(parents=True)
    for name in ("config.json", "checkpoints/amy.safetensors"):
        (tmp_path / "old" / name).write_text("{}")
    claim_folder(tmp_path / "old", config("promptfl"))
    assert open_to_others(tmp_path / "old") == []


def test_kept_features_of_images_are_private(tmp_path: Path) -> None:
    FeatureCache("base", 1.0, tmp_path / "cache", 1.0)
    assert open_to_others(tmp_path / "cache") == []
