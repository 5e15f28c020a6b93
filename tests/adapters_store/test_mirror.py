import uuid
from pathlib import Path

import fsspec
import pytest

from adapters_store.mirror.mirror import pull, push
from adapters_store.store import Store, StoreError
from tests.adapters_store.artefacts import lora_files, manifest, prompt_files


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{uuid.uuid4().hex}" if request.param == "memory" else f"file://{tmp_path}/mirror"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "here")
    for value in (1.0, 2.0):
        store.publish(manifest(), prompt_files(value), {"value": value}, activate=True)
    store.publish(manifest("bob", family="mllm"), lora_files(), {}, activate=True)
    return store


def write(url: str, path: str, data: bytes) -> None:
    with fsspec.open(f"{url}/{path}", "wb") as file:
        file.write(data)


def test_a_store_travels_through_a_mirror_and_a_second_time_copies_nothing(
    store: Store, url: str, tmp_path: Path
) -> None:
    assert len(push(store, url).copied) == 3
    there = Store(tmp_path / "there")
    moved = pull(url, there)
    assert (len(moved.copied), sorted(moved.pointed), moved.refused) == (3, ["amy", "bob"], [])
    for client in ("amy", "bob"):
        assert there.versions(client) == store.versions(client)
        assert there.live(client) == store.live(client)
        for version in there.versions(client):
            assert there.verify(client, version).report == store.artefact(client, version).report
    assert push(store, url).copied == []
    again = pull(url, there)
    assert (again.copied, again.pointed) == ([], [])


def test_the_pointer_follows_a_rollback(store: Store, url: str, tmp_path: Path) -> None:
    push(store, url)
    there = Store(tmp_path / "there")
    pull(url, there)
    back = store.rollback("amy")
    push(store, url)
    assert pull(url, there).pointed == ["amy"]
    assert there.live("amy").version == back


def test_a_version_without_its_manifest_is_not_there_yet(store: Store, url: str, tmp_path: Path) -> None:
    push(store, url)
    live = store.live("amy")
    fs, root = fsspec.core.url_to_fs(url)
    fs.rm(f"{root}/amy/{live.version}/manifest.json")
    there = Store(tmp_path / "there")
    moved = pull(url, there)
    assert there.versions("amy") == live.previous
    assert there.live("amy") is None
    assert f"the pointer of amy at {url} is refused" in moved.refused[0]
    push(store, url)  # an interrupted push is finished by the next
    assert pull(url, there).refused == []
    assert there.live("amy") == live


def test_what_was_changed_on_the_mirror_is_refused_and_the_old_version_stays(
    store: Store, url: str, tmp_path: Path
) -> None:
    push(store, url)
    there = Store(tmp_path / "there")
    pull(url, there)
    before = there.live("amy")
    new = store.publish(manifest(), prompt_files(3.0), {}, activate=True)
    push(store, url)
    write(url, f"amy/{new}/prompt.safetensors", prompt_files(4.0)["prompt.safetensors"])
    moved = pull(url, there)
    assert f"amy@{new} of {url} is refused: file prompt.safetensors is damaged" in moved.refused[0]
    assert there.live("amy") == before
    write(url, "amy/live-clip.json", b"{half")
    assert "live-clip.json is damaged" in pull(url, there).refused[1]
    assert there.live("amy") == before


def test_a_damaged_version_is_not_pushed_and_does_not_become_the_pointer(
    store: Store, url: str, tmp_path: Path
) -> None:
    push(store, url)
    new = store.publish(manifest(), prompt_files(3.0), {}, activate=True)
    (store.root / "amy" / new / "prompt.safetensors").write_bytes(b"")
    moved = push(store, url)
    assert (moved.copied, moved.pointed) == ([], ["bob"])
    assert f"amy@{new} is refused" in moved.refused[0]


def test_a_second_store_may_not_push_to_the_same_mirror(store: Store, url: str, tmp_path: Path) -> None:
    push(store, url)
    with pytest.raises(StoreError, match="has another writer"):
        push(Store(tmp_path / "other"), url)


def test_an_unknown_scheme_is_a_sentence(store: Store) -> None:
    with pytest.raises(StoreError, match="mirror 'nowhere://x' cannot be opened"):
        push(store, "nowhere://x")
