from pathlib import Path

import pytest

from adapters_store.paths import PROJECT_ROOT, default_store, resolve


def test_a_path_is_taken_from_the_working_directory_first_then_from_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("adapters_store") == PROJECT_ROOT / "adapters_store"
    (tmp_path / "adapters_store").mkdir()
    assert resolve("adapters_store") == Path("adapters_store")
    assert resolve(tmp_path / "absent") == tmp_path / "absent"
    monkeypatch.setenv("FEDTAILOR_STORE", str(tmp_path / "named"))
    assert default_store() == tmp_path / "named"
    monkeypatch.delenv("FEDTAILOR_STORE")
    assert default_store() == PROJECT_ROOT / "adapters_store" / "published"
