"""Keys: what is kept of them, what they open, and when."""

import json
from pathlib import Path

import pytest

from serve.auth import Keys, digest_of
from serve.errors import GatewayError


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
