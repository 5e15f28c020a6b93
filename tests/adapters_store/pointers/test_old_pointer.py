"""Stores and mirrors with one ``live.json`` a client, which versions of either family moved."""

import json
import logging
import time
from pathlib import Path

import pytest

from adapters_store.mirror.mirror import pull, push
from adapters_store.pointers import of_store
from adapters_store.pointers.old import UNREADABLE
from adapters_store.store import Live, Store, StoreError
from tests.adapters_store.damage import BYTES, SPECIAL, in_time, said
from tests.adapters_store.killed_writer import killed_at
from tests.adapters_store.pointers.test_families import chats, sorts


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "here")


def old(root: Path, version: str, *previous: str, client: str = "amy", **fields: object) -> Path:
    """Leaves the client with nothing but the pointer that stores had before."""
    for path in (root / client).glob("live*.json"):
        path.unlink()
    path = root / client / "live.json"
    path.write_text(
        json.dumps({"version": version, "canary": None, "canary_percent": 0, "previous": previous} | fields)
    )
    return path


def test_it_is_the_pointer_of_its_versions_family(store: Store) -> None:
    first, second, third = (sorts(store, v, activate=False) for v in (1.0, 2.0, 3.0))
    path = old(store.root, second, first)
    assert (store.clients(), store.families("amy")) == (["amy"], ["clip"])
    assert store.live("amy") == Live(version=second, previous=[first])
    store.activate("amy", third)
    assert store.live("amy") == Live(version=third, previous=[first, second])
    assert not path.exists()
    old(store.root, second, first)
    assert store.rollback("amy") == first
    assert store.live("amy", "mllm") is None


def test_what_the_other_family_lost_by_it_answers_again(store: Store) -> None:
    """The way a store looks where ``promptfl`` was published over ``fedit``."""
    chatting = [chats(store, v, "global", activate=False) for v in (1.0, 2.0, 3.0)]
    sorting = [sorts(store, v, "global", activate=False) for v in (1.0, 2.0)]
    old(store.root, sorting[1], chatting[0], sorting[0], chatting[1], client="global")
    expected = {"mllm": Live(version=chatting[1], previous=[chatting[0]]),
                "clip": Live(version=sorting[1], previous=[sorting[0]])}  # fmt: skip
    assert {family: store.live("global", family) for family in ("mllm", "clip")} == expected
    store.activate("global", chatting[2])  # takes the old one apart
    assert store.live("global", "clip") == expected["clip"]
    assert store.live("global", "mllm") == Live(version=chatting[2], previous=chatting[:2])


def test_no_moment_of_taking_it_apart_loses_a_pointer(store: Store) -> None:
    chatting, sorting = chats(store, 1.0, activate=False), [sorts(store, v, activate=False) for v in (1.0, 2.0)]
    touch, killed = 0, True
    while killed:
        touch += 1
        old(store.root, sorting[0], chatting)
        killed = killed_at(touch, lambda: Store(store.root).activate("amy", sorting[1]))
        assert store.live("amy", "mllm") == Live(version=chatting)
        assert store.live("amy", "clip").version in sorting
    assert touch > 5
    assert store.live("amy", "clip") == Live(version=sorting[1], previous=[sorting[0]])


def test_what_has_a_file_of_its_own_does_not_heed_it(store: Store) -> None:
    """Two such files are what a writer leaves that was killed before the old one was gone."""
    first, second, sorting = chats(store, 1.0), chats(store, 2.0), sorts(store, 1.0, activate=False)
    (store.root / "amy" / "live.json").write_text(json.dumps({"version": sorting, "previous": [first]}))
    expected = Live(version=second, previous=[first])
    assert (store.live("amy", "mllm"), store.live("amy", "clip")) == (expected, Live(version=sorting))
    store.activate("amy", sorting)
    assert (store.live("amy", "mllm"), store.live("amy", "clip")) == (expected, Live(version=sorting))


def test_it_is_not_searched_for_ever(store: Store) -> None:
    chatting, sorting = chats(store, 1.0, activate=False), sorts(store, 1.0, activate=False)
    gone = [f"{number:016x}" for number in range(UNREADABLE + 1)]
    old(store.root, sorting, chatting, *gone[1:])
    assert store.families("amy") == ["mllm", "clip"]
    old(store.root, sorting, chatting, *gone)
    assert store.families("amy") == ["clip"]


def test_a_version_whose_family_cannot_be_read_is_of_what_it_replaced(store: Store) -> None:
    first, second, third = (chats(store, v, activate=False) for v in (1.0, 2.0, 3.0))
    old(store.root, third, first, second)
    for version in (third, first):
        (store.root / "amy" / version / "manifest.json").write_bytes(b"{")
    assert store.live("amy") == Live(version=third, previous=[second])
    (store.root / "amy" / second / "manifest.json").write_bytes(b"{")
    with pytest.raises(StoreError, match=rf"live\.json of client 'amy' is damaged \(amy@{third}: manifest.json"):
        Store(store.root).live("amy", "mllm")


def test_a_manifest_that_cannot_be_read_is_not_read_all_the_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    version = chats(store, 1.0, activate=False)
    old(store.root, version)
    manifest = store.root / "amy" / version / "manifest.json"
    sound = manifest.read_bytes()
    manifest.write_bytes(b"{")
    monkeypatch.setattr(of_store, "RETRY_S", 0.2)
    with pytest.raises(StoreError, match="is damaged"):
        store.live("amy")
    manifest.write_bytes(sound)
    with pytest.raises(StoreError, match="is damaged"):
        store.live("amy")
    assert Store(store.root).live("amy") == Live(version=version)
    time.sleep(0.2)
    assert store.live("amy") == Live(version=version)


def test_a_canary_in_it_is_ignored_and_that_is_said_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    live, canary = sorts(store, 1.0, "eve"), sorts(store, 2.0, "eve", activate=False)
    old(store.root, live, client="eve", canary=canary, canary_percent=25)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert Store(store.root).live("eve") == Live(version=live)
    assert [record.message for record in caplog.records] == [
        f"the canary eve@{canary} is ignored: no gateway serves canaries"
    ]
    store.activate("eve", canary)
    assert store.live("eve") == Live(version=canary, previous=[live])


@pytest.mark.parametrize("data", BYTES.values(), ids=BYTES)
def test_a_damaged_one_is_named_and_repaired_by_activating(store: Store, data: bytes) -> None:
    version = sorts(store, 1.0, activate=False)
    old(store.root, version).write_bytes(data)
    for call in (store.live, store.rollback, store.families):
        with pytest.raises(StoreError, match=r"live\.json of client 'amy' is damaged"):
            call("amy")
    store.activate("amy", version)
    assert (store.live("amy"), store.families("amy")) == (Live(version=version), ["clip"])


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)
def test_what_is_no_file_in_its_place_is_refused_and_goes(store: Store, make) -> None:  # type: ignore[no-untyped-def]
    version = sorts(store, 1.0, activate=False)
    path = old(store.root, version)
    path.unlink()
    make(path)
    with in_time(), pytest.raises(StoreError, match=r"live\.json of client 'amy' is damaged"):
        store.live("amy", "clip")
    said(store, "amy", version)
    assert store.families("amy") == ["clip"]


def test_a_mirror_from_before_is_pulled(store: Store, tmp_path: Path) -> None:
    url, there = f"file://{tmp_path}/mirror", Store(tmp_path / "there")
    chatting, sorting = chats(store, 1.0), sorts(store, 1.0)
    push(store, url)
    path = old(tmp_path / "mirror", sorting, chatting)
    moved = pull(url, there)
    assert (len(moved.copied), moved.pointed, moved.refused) == (2, ["amy"], [])
    assert (there.live("amy", "mllm"), there.live("amy", "clip")) == (Live(version=chatting), Live(version=sorting))
    path.write_bytes(b"{half")
    assert [line.count("live.json is damaged") for line in pull(url, there).refused] == [1]
    assert there.live("amy", "clip") == Live(version=sorting)
