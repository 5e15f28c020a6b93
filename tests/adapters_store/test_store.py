import json
import os
from pathlib import Path

import pytest

from adapters_store.store import Live, Store, StoreError
from tests.adapters_store.artefacts import manifest, prompt_files


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "published")


def publish(store: Store, value: float, client: str = "amy", activate: bool = True) -> str:
    return store.publish(manifest(client), prompt_files(value), {"value": value}, activate=activate)


def test_a_published_version_is_read_back_whole(store: Store) -> None:
    assert store.clients() == []
    version = publish(store, 1.0)
    artefact = store.artefact("amy", version)
    assert artefact.manifest.version == version
    assert (artefact.path / "prompt.safetensors").read_bytes() == prompt_files(1.0)["prompt.safetensors"]
    assert artefact.report["value"] == 1.0
    assert store.live("amy").version == version
    assert publish(store, 1.0, "global") != version
    assert store.clients() == ["amy", "global"]


def test_equal_content_is_one_version_and_is_not_written_again(store: Store) -> None:
    version = publish(store, 1.0)
    before = {p: p.stat().st_mtime_ns for p in (store.root / "amy" / version).iterdir()}
    again = store.publish(manifest(), prompt_files(1.0), {"value": "another run"}, activate=True)
    assert again == version
    assert {p: p.stat().st_mtime_ns for p in (store.root / "amy" / version).iterdir()} == before
    assert store.live("amy").previous == []


def test_publishing_damaged_content_again_repairs_it(store: Store) -> None:
    version = publish(store, 1.0)
    (store.root / "amy" / version / "prompt.safetensors").write_bytes(b"")
    assert publish(store, 1.0) == version
    store.verify("amy", version)


def test_versions_are_in_the_order_of_publishing_even_if_the_clock_goes_back(store: Store) -> None:
    first = publish(store, 1.0)
    report = store.root / "amy" / first / "report.json"
    report.write_text(json.dumps({"published": "2999-01-01T00:00:00.000000+00:00"}))
    later = [publish(store, 2.0), publish(store, 0.0)]
    assert store.versions("amy") == [first, *later]


def test_publishing_without_activating_leaves_the_pointer(store: Store) -> None:
    publish(store, 1.0, activate=False)
    assert store.live("amy") is None
    first = publish(store, 1.0)
    publish(store, 2.0, activate=False)
    assert store.live("amy").version == first


def test_rollback_goes_back_step_by_step_and_then_says_so(store: Store) -> None:
    first, second, third = (publish(store, float(i)) for i in range(3))
    store.activate("amy", first)
    assert store.live("amy").previous == [second, third]
    assert [store.rollback("amy"), store.rollback("amy")] == [third, second]
    with pytest.raises(StoreError, match=f"nothing to roll back to: no version was live before {second}"):
        store.rollback("amy")
    publish(store, 5.0, "bob", activate=False)
    with pytest.raises(StoreError, match="'bob' has no live version"):
        store.rollback("bob")


def test_a_damaged_version_is_not_activated_and_the_old_one_stays(store: Store) -> None:
    first, second = publish(store, 1.0), publish(store, 2.0, activate=False)
    (store.root / "amy" / second / "prompt.safetensors").write_bytes(b"junk")
    with pytest.raises(StoreError, match=f"amy@{second} is refused: file prompt.safetensors has 4 bytes"):
        store.activate("amy", second)
    assert store.live("amy").version == first


def test_gc_keeps_the_live_one_and_the_rollback_targets_asked_for(store: Store) -> None:
    old, target, live = (publish(store, float(i)) for i in range(3))
    waiting = publish(store, 8.0, activate=False)
    other = publish(store, 1.0, "bob")
    assert store.gc(9) == []
    assert store.gc(1) == [f"amy@{old}"]
    assert store.versions("amy") == [target, live, waiting]
    assert store.live("amy").previous == [target]
    assert store.rollback("amy") == target
    assert store.gc(0) == [f"amy@{v}" for v in (live, waiting)]
    assert (store.versions("amy"), store.versions("bob")) == ([target], [other])
    with pytest.raises(StoreError, match="keep is -1"):
        store.gc(-1)


def test_a_canary_is_refused_since_no_gateway_serves_it(store: Store) -> None:
    live, canary = publish(store, 1.0), publish(store, 2.0, activate=False)
    for version, percent in ((canary, 25), (canary, 0), (None, 0)):
        with pytest.raises(StoreError, match="canary of client 'amy' is refused: canaries are not served yet"):
            store.set_canary("amy", version, percent)
    assert store.live("amy") == Live(version=live)


def test_a_report_that_is_no_json_is_refused(store: Store) -> None:
    for value in (float("nan"), object()):
        with pytest.raises(StoreError, match="a version of 'amy' is refused: the report is no JSON"):
            store.publish(manifest(), prompt_files(), {"loss": value}, activate=True)
    assert store.clients() == []


def test_what_dead_writers_left_is_swept_once_it_is_old(store: Store) -> None:
    publish(store, 1.0)
    old, new = store.root / ".staging" / "amy-old", store.root / ".staging" / "amy-new"
    for folder in (old, new):
        (folder / ("0" * 16)).mkdir(parents=True)
        (folder / "manifest.json").write_text("{")
    for path in (*old.rglob("*"), old):
        os.utime(path, (0, 0))
    assert store.gc(0) == []
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize("client", ["../amy", "a/b", "", ".staging", "amy.", "Amy", "a" * 64, "base"])
def test_no_client_id_leads_out_of_the_store(store: Store, client: str) -> None:
    publish(store, 1.0)
    for call in (store.versions, store.live, store.rollback):
        with pytest.raises(StoreError, match="client id"):
            call(client)


@pytest.mark.parametrize("version", ["..", "../../amy", "", "0" * 15, "0" * 17, "G" * 16, "live.json"])
def test_no_version_leads_out_of_its_client(store: Store, version: str) -> None:
    publish(store, 1.0)
    for call in (store.artefact, store.verify, store.activate):
        with pytest.raises(StoreError, match="version"):
            call("amy", version)


def test_the_unknown_is_a_sentence_and_makes_no_folder(store: Store) -> None:
    publish(store, 1.0)
    with pytest.raises(StoreError, match=f"amy@{'0' * 16}: there is no such version"):
        store.activate("amy", "0" * 16)
    with pytest.raises(StoreError, match="client 'bob' is not in the store"):
        store.activate("bob", "0" * 16)
    assert [p.name for p in store.root.iterdir() if p.name == "bob"] == []


def test_a_damaged_pointer_is_named_and_repaired_by_activating(store: Store) -> None:
    version = publish(store, 1.0)
    (store.root / "amy" / "live-clip.json").write_text('{"version": "../../etc"}')
    with pytest.raises(StoreError, match=r"live-clip\.json of client 'amy' is damaged"):
        store.live("amy")
    store.activate("amy", version)
    assert store.live("amy").version == version
