"""A store is its owner's alone, whatever the umask says and however it was made before."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters_store.mirror.mirror import pull, push
from adapters_store.store import Store
from tests.adapters_store.artefacts import lora_files, manifest, prompt_files


def open_to_others(root: Path) -> list[str]:
    """What anybody but its owner may do something with."""
    return [str(path) for path in (root, *root.rglob("*")) if not path.is_symlink() and path.stat().st_mode & 0o077]


def published(root: Path) -> Store:
    store = Store(root)
    for value in (1.0, 2.0, 3.0):
        store.publish(manifest(), prompt_files(value), {}, activate=True)
    store.publish(manifest("bob", family="mllm"), lora_files(), {}, activate=True)
    return store


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
def test_all_that_is_written_is_its_owners_alone(tmp_path: Path) -> None:
    store = published(tmp_path / "deep" / "here")
    store.rollback("amy")
    store.gc(0)
    push(store, f"file://{tmp_path}/mirror")
    pull(f"file://{tmp_path}/mirror", there := Store(tmp_path / "there"))
    for root in (store.root, there.root):
        assert open_to_others(root) == []
        assert {p.stat().st_mode & 0o777 for p in root.rglob("*") if p.is_dir()} == {0o700}
        assert {p.stat().st_mode & 0o777 for p in root.rglob("*") if p.is_file()} == {0o600}
    assert open_to_others(tmp_path / "deep") == []


@pytest.mark.parametrize("touch", ["publish", "rollback", "gc", "close_to_others"])
def test_a_store_from_before_is_closed_by_whoever_opens_it(tmp_path: Path, touch: str) -> None:
    store = published(tmp_path / "here")
    (store.root / "amy" / "away").symlink_to(tmp_path / "stranger")
    (tmp_path / "stranger").write_text("not the store's")
    for path in (store.root, *store.root.rglob("*"), tmp_path / "stranger"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    actions = {
        "publish": lambda: store.publish(manifest(), prompt_files(9.0), {}, activate=False),
        "rollback": lambda: store.rollback("amy"),
        "gc": lambda: store.gc(0),
        "close_to_others": store.close_to_others,
    }
    actions[touch]()
    assert open_to_others(store.root) == []
    assert (tmp_path / "stranger").stat().st_mode & 0o777 == 0o644
    store.verify("amy", store.versions("amy")[-1])


def test_a_root_that_is_a_link_is_closed_where_it_leads(tmp_path: Path) -> None:
    store = published(tmp_path / "here")
    store.root.chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "here")
    linked = Store(tmp_path / "link")
    linked.rollback("amy")
    assert open_to_others(store.root) == []
    assert linked.clients() == ["amy", "bob"]
