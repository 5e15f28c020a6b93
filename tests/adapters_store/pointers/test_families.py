"""A client with versions of both families: each family's pointer moves, and is damaged, by itself."""

import json
from pathlib import Path

import pytest

from adapters_store.__main__ import main
from adapters_store.mirror.mirror import pull, push
from adapters_store.store import Live, Store, StoreError
from tests.adapters_store.artefacts import lora_files, lora_tensors, manifest, prompt_files


def chats(store: Store, value: float, client: str = "amy", activate: bool = True) -> str:
    files = lora_files(lora_tensors(value=value))
    return store.publish(manifest(client, "mllm"), files, {}, activate=activate)


def sorts(store: Store, value: float, client: str = "amy", activate: bool = True) -> str:
    return store.publish(manifest(client), prompt_files(value), {}, activate=activate)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "here")


@pytest.mark.parametrize("client", ["amy", "global"])
def test_a_version_of_one_family_takes_the_place_of_none_of_the_other(store: Store, client: str) -> None:
    first, second = chats(store, 1.0, client), chats(store, 2.0, client)
    assert (store.families(client), store.live(client)) == (["mllm"], Live(version=second, previous=[first]))
    third = sorts(store, 1.0, client)
    assert store.families(client) == ["mllm", "clip"]
    assert store.live(client, "mllm") == Live(version=second, previous=[first])
    assert store.live(client, "clip") == Live(version=third)


def test_which_family_goes_back_is_asked_where_there_are_two(store: Store) -> None:
    chatting, sorting = [chats(store, v) for v in (1.0, 2.0)], [sorts(store, v) for v in (1.0, 2.0)]
    for call in (store.rollback, store.live):
        with pytest.raises(StoreError, match="families 'mllm' and 'clip': say which"):
            call("amy")
    assert store.rollback("amy", "mllm") == chatting[0]
    assert store.live("amy", "clip") == Live(version=sorting[1], previous=[sorting[0]])
    assert store.rollback("amy", "clip") == sorting[0]
    assert store.live("amy", "mllm") == Live(version=chatting[0])
    chats(store, 1.0, "bob")
    with pytest.raises(StoreError, match="'bob' has no live version of family 'clip'"):
        store.rollback("bob", "clip")


def test_cleaning_up_keeps_what_is_live_in_each_family(store: Store) -> None:
    chatting, sorting = [chats(store, v) for v in (1.0, 2.0, 3.0)], [sorts(store, v) for v in (1.0, 2.0, 3.0)]
    assert set(store.gc(1)) == {f"amy@{version}" for version in (chatting[0], sorting[0])}
    assert store.live("amy", "mllm") == Live(version=chatting[2], previous=[chatting[1]])
    assert store.rollback("amy", "clip") == sorting[1]
    assert set(store.gc(0)) == {f"amy@{version}" for version in (chatting[1], sorting[2])}
    assert set(store.versions("amy")) == {chatting[2], sorting[1]}


def test_a_damaged_pointer_is_about_its_own_family(store: Store) -> None:
    chatting, sorting = chats(store, 1.0), sorts(store, 1.0)
    (store.root / "amy" / "live-clip.json").write_bytes(b"{half")
    assert store.live("amy", "mllm") == Live(version=chatting)
    with pytest.raises(StoreError, match=r"live-clip\.json of client 'amy' is damaged"):
        store.live("amy", "clip")
    chats(store, 2.0)
    store.activate("amy", sorting)
    assert store.live("amy", "clip") == Live(version=sorting)


def test_a_pointer_to_a_version_of_the_other_family_is_damaged(store: Store, tmp_path: Path) -> None:
    chatting, sorting = chats(store, 1.0), sorts(store, 1.0)
    (store.root / "amy" / "live-clip.json").write_text(json.dumps({"version": chatting}))
    with pytest.raises(StoreError, match=f"version: {chatting} is of family 'mllm'"):
        store.live("amy", "clip")
    (store.root / "amy" / "live-clip.json").write_text(json.dumps({"version": sorting, "previous": [chatting]}))
    with pytest.raises(StoreError, match=f"version: {chatting} is of family 'mllm'"):
        store.rollback("amy", "clip")
    push(store, f"file://{tmp_path}/mirror")
    (tmp_path / "mirror/amy/live-clip.json").write_text(json.dumps({"version": chatting}))
    moved = pull(f"file://{tmp_path}/mirror", there := Store(tmp_path / "there"))
    assert f"version: {chatting} is of family 'mllm'" in moved.refused[0]
    assert (there.families("amy"), moved.pointed) == (["mllm"], ["amy"])


def test_both_pointers_travel_and_what_is_wrong_with_one_leaves_the_other(store: Store, tmp_path: Path) -> None:
    url, there = f"file://{tmp_path}/mirror", Store(tmp_path / "there")
    chats(store, 1.0), sorts(store, 1.0)
    assert push(store, url).pointed == ["amy"]
    assert pull(url, there).pointed == ["amy"]
    later = chats(store, 2.0)
    (store.root / "amy" / "live-clip.json").write_bytes(b"{half")
    assert "live-clip.json of client 'amy' is damaged" in push(store, url).refused[0]
    before = there.live("amy", "clip")
    (tmp_path / "mirror/amy/live-clip.json").write_bytes(b"[")
    moved = pull(url, there)
    assert "live-clip.json is damaged" in moved.refused[0]
    assert (there.live("amy", "mllm").version, there.live("amy", "clip")) == (later, before)


def test_the_commands_say_what_answers_in_each_family(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    chatting, sorting = [chats(store, v) for v in (1.0, 2.0)], sorts(store, 1.0)

    def said(*words: str) -> tuple[int, str]:
        code = main(["--store", str(store.root), "--json", *words])
        out, err = capsys.readouterr()
        return code, out + err

    rows = json.loads(said("list")[1])
    assert [(row["family"], row["live"]) for row in rows] == [("mllm", chatting[1]), ("clip", sorting)]
    states = {row["version"]: row["state"] for row in json.loads(said("show", "amy")[1])}
    assert states == {chatting[0]: "", chatting[1]: "live", sorting: "live"}
    code, sentence = said("rollback", "amy")
    assert (code, "say which (--family)" in sentence) == (1, True)
    assert json.loads(said("rollback", "amy", "--family", "mllm")[1])["live"] == chatting[0]
    assert json.loads(said("activate", "amy", chatting[1])[1])["live"] == chatting[1]
    (store.root / "amy" / "live-clip.json").write_bytes(b"{half")
    rows = json.loads(said("list")[1])
    assert [(row["family"], "problem" in row) for row in rows] == [("mllm", False), ("clip", True)]
