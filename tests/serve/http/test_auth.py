"""Keys: what is kept of them, what they open, and when."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from serve.errors import GatewayError
from serve.http.auth import Keys, digest_of
from tests.adapters_store.damage import in_time


def status_of(keys: Keys, authorization: str | None) -> int:
    """The status a header is refused with."""
    with pytest.raises(GatewayError) as refused:
        keys.authenticate(authorization)
    return refused.value.status


def test_a_key_opens_its_clients_and_what_is_shared(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    access = keys.authenticate(f"Bearer {keys.add(['ann', 'bob'])}")
    assert not access.admin
    assert [access.allows(client) for client in ("ann", "bob", "global", "base", "cat")] == [True] * 4 + [False]


def test_an_admin_key_opens_every_client(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    access = keys.authenticate(f"bearer {keys.add([], admin=True)}")
    assert access.admin
    assert access.allows("anybody")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer  ", "Basic abc", "ft-abc", "Bearer ft-unknown"])
def test_other_headers_are_refused(tmp_path: Path, header: str | None) -> None:
    Keys(tmp_path).add(["ann"])
    assert status_of(Keys(tmp_path), header) == 401


def test_only_digests_are_kept_and_only_the_owner_may_read_them(tmp_path: Path) -> None:
    key = Keys(tmp_path).add(["ann"])
    file = tmp_path / "keys.json"
    assert key not in file.read_text()
    assert json.loads(file.read_text()) == {digest_of(key): {"clients": ["ann"], "admin": False}}
    assert file.stat().st_mode & 0o777 == 0o600


def test_keys_come_and_go_without_a_restart(tmp_path: Path) -> None:
    serving, managing = Keys(tmp_path), Keys(tmp_path)
    first = managing.add(["ann"])
    assert serving.authenticate(f"Bearer {first}").allows("ann")
    second = managing.add(["bob"])
    assert serving.authenticate(f"Bearer {second}").allows("bob")
    managing.remove(digest_of(first)[:10])
    assert status_of(serving, f"Bearer {first}") == 401
    assert serving.authenticate(f"Bearer {second}").allows("bob")


@pytest.mark.parametrize("client", ["../ann", "base", "Ann", "a.b", ""])
def test_an_impossible_client_gets_no_key(tmp_path: Path, client: str) -> None:
    with pytest.raises(ValueError, match="client id"):
        Keys(tmp_path).add([client])


def test_a_key_for_nothing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one client"):
        Keys(tmp_path).add([])


def test_an_ambiguous_digest_removes_nothing(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    keys.add(["ann"])
    for prefix in ("", "not-a-digest"):
        with pytest.raises(ValueError, match="keys have a digest"):
            keys.remove(prefix)
    assert len(keys.entries()) == 1


GOOD, OTHER = "ft-good", "ft-other"
SOUND = {digest_of(GOOD): {"clients": ["ann"], "admin": False}, digest_of(OTHER): {"clients": ["bob"], "admin": False}}
DAMAGED = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 6000,
    json.dumps(SOUND).encode()[:-9],
]


@pytest.fixture
def serving(tmp_path: Path) -> Keys:
    """A gateway's keys, which opened once."""
    (tmp_path / "keys.json").write_text(json.dumps(SOUND))
    keys = Keys(tmp_path)
    assert keys.access(GOOD).allows("ann")
    return keys


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def fifo(path: Path, _: bytes) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path, _: bytes) -> None:
    path.rename(path.with_name("elsewhere.json"))
    path.symlink_to("elsewhere.json")


def huge(path: Path, _: bytes) -> None:
    os.truncate(path, 1 << 40)


def folder(path: Path, _: bytes) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "data"), [*((put, data) for data in DAMAGED), (fifo, b""), (link, b""), (huge, b""), (folder, b"")]
)
def test_a_key_file_that_cannot_be_read_leaves_what_was_known_and_is_said_once(
    serving: Keys,
    tmp_path: Path,
    damage: Callable[[Path, bytes], None],
    data: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "keys.json"
    damage(path, data)
    with in_time():
        for _ in range(3):
            assert serving.access(GOOD).clients == {"ann"}
            assert status_of(serving, "Bearer ft-unknown") == 401
        assert status_of(Keys(tmp_path), f"Bearer {GOOD}") == 401  # one that starts over it knows nobody
    assert [record.getMessage().startswith("keys.json is damaged") for record in caplog.records] == [True, True]


def test_a_key_that_was_taken_away_is_not_given_back_by_damage(serving: Keys, tmp_path: Path) -> None:
    Keys(tmp_path).remove(digest_of(GOOD))
    assert status_of(serving, f"Bearer {GOOD}") == 401
    (tmp_path / "keys.json").write_bytes(b"{")
    assert status_of(serving, f"Bearer {GOOD}") == 401
    assert serving.access(OTHER).clients == {"bob"}
    (tmp_path / "keys.json").unlink()
    assert status_of(serving, f"Bearer {OTHER}") == 401


def test_a_key_that_goes_before_anybody_asked_is_closed_at_once(serving: Keys, tmp_path: Path) -> None:
    for _ in range(20):
        key = Keys(tmp_path).add(["cat"])
        assert serving.access(key).allows("cat")
        Keys(tmp_path).remove(digest_of(key))
        assert status_of(serving, f"Bearer {key}") == 401


BAD_ENTRIES = [
    {"clients": ["ann"], "admin": "false"},
    {"clients": ["ann"], "admin": "true"},
    {"clients": ["ann"], "admin": 1},
    {"clients": ["ann"], "admin": None},
    {"clients": ["ann"]},
    {"admin": True},
    {"clients": "ann", "admin": False},
    {"clients": [["ann"]], "admin": False},
    {"clients": {"ann": 1}, "admin": False},
    {"clients": ["../ann"], "admin": False},
    {"clients": ["ann"], "admin": True, "until": "tomorrow"},
    {"clients": ["ann"], "admin": True, "digest": digest_of(OTHER)},
    "admin",
    ["admin"],
    None,
    True,
]


@pytest.mark.parametrize("entry", BAD_ENTRIES, ids=str)
def test_a_malformed_entry_opens_nothing_and_the_sound_ones_go_on(
    serving: Keys, tmp_path: Path, entry: object, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({**SOUND, digest_of(GOOD): entry}))
    for _ in range(3):
        assert status_of(serving, f"Bearer {GOOD}") == 401
    assert serving.access(OTHER).clients == {"bob"}
    assert not serving.access(OTHER).admin
    assert len(caplog.records) == 1
    assert all(digest_of(GOOD)[:8] not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("digest", ["", "x", GOOD, digest_of(GOOD).upper(), digest_of(GOOD)[:-1]])
def test_what_is_no_digest_opens_nothing_and_is_not_told(
    tmp_path: Path, digest: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({digest: {"clients": [], "admin": True}}))
    assert status_of(Keys(tmp_path), f"Bearer {GOOD}") == 401
    assert "entry 1: digest" in caplog.text
    assert GOOD not in caplog.text


@pytest.mark.parametrize("data", [*DAMAGED, json.dumps({**SOUND, "x": {"clients": [], "admin": True}}).encode()])
def test_a_damaged_key_file_is_not_written_over(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(data)
    keys = Keys(tmp_path)
    for change in (lambda: keys.add(["ann"]), lambda: keys.remove(digest_of(GOOD)), keys.entries):
        with pytest.raises(
            ValueError, match=r"keys\.json is damaged \(.*\); it was left as it is: repair it, or delete"
        ):
            change()
    assert path.read_bytes() == data


def test_a_key_of_half_a_character_is_unknown(serving: Keys) -> None:
    assert status_of(serving, "Bearer \ud800") == 401


def test_the_key_file_and_its_lock_are_their_owners_alone(tmp_path: Path) -> None:
    root = tmp_path / "store"
    before = os.umask(0)
    try:
        Keys(root).add(["ann"])
    finally:
        os.umask(before)
    assert {p.name: p.stat().st_mode & 0o777 for p in root.iterdir() if p.is_file()}["keys.json"] == 0o600
    assert not [path for path in (root, *root.rglob("*")) if path.stat().st_mode & 0o077]


def test_asking_costs_one_look_at_the_file(serving: Keys) -> None:
    touched: list[str] = []

    def hook(event: str, about: tuple[object, ...]) -> None:
        if counting and event in ("open", "os.listdir", "os.scandir"):
            touched.append(event)

    counting = False
    sys.addaudithook(hook)
    counting = True
    for _ in range(100):
        serving.access(GOOD)
    counting = False
    assert touched == []
