"""The order of versions comes from their reports, which may say anything: no crash, and nothing pinned for ever."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fsspec
import pytest

from adapters_store.mirror.mirror import pull, push
from adapters_store.store import Store, StoreError
from adapters_store.versions.report import after_all, check_published
from tests.adapters_store.artefacts import manifest, prompt_files
from tests.adapters_store.damage import BYTES, in_time

ABSURD = [
    "9999-12-31T23:59:59.999999+00:00",
    "2999-01-01T00:00:00.000000+00:00",
    "9" * 5000,
    "zzzz",
    "2020-01-01",
    "2020-01-01T00:00:00.000000+05:00",
    "2020-01-01T00:00:00.000000",
    "",
    None,
    True,
    ["2020"],
    {"a": 1},
]


def publish(store: Store, value: float, client: str = "amy") -> str:
    return store.publish(manifest(client), prompt_files(value), {"value": value}, activate=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "here")
    for client in ("amy", "bob"):
        publish(store, 1.0, client)
    return store


def say(store: Store, version: str, moment: object) -> None:
    path = store.root / "amy" / version / "report.json"
    path.write_text(json.dumps({"published": moment}))


@pytest.mark.parametrize("moment", ABSURD, ids=lambda moment: str(moment)[:30])
def test_an_absurd_moment_on_disk_is_none_at_all(store: Store, moment: object) -> None:
    first = store.versions("amy")[0]
    say(store, first, moment)
    later = [publish(store, 2.0), publish(store, 3.0)]
    assert store.versions("amy") == [first, *later]
    for version in later:
        said = check_published(store.artefact("amy", version).report)
        assert datetime.fromisoformat(said) < datetime.now(UTC) + timedelta(minutes=1)
    assert store.gc(1) == [f"amy@{first}"]


def test_a_clock_that_was_some_hours_ahead_keeps_the_order(store: Store) -> None:
    first = store.versions("amy")[0]
    ahead = datetime.now(UTC) + timedelta(hours=5)
    say(store, first, ahead.isoformat(timespec="microseconds"))
    second = publish(store, 2.0)
    assert store.versions("amy") == [first, second]
    assert store.artefact("amy", second).report["published"] > ahead.isoformat()


def test_the_next_moment_is_now_or_just_after_the_newest() -> None:
    before = datetime.now(UTC).isoformat(timespec="microseconds")
    assert before <= after_all(["", "2020-01-01T00:00:00.000000+00:00"]) <= datetime.now(UTC).isoformat()
    ahead = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="microseconds")
    assert after_all([ahead]) > ahead
    assert check_published({"published": after_all([ahead])}) == after_all([ahead])


@pytest.fixture
def url(tmp_path: Path, store: Store) -> str:
    url = f"file://{tmp_path}/mirror"
    push(store, url)
    return url


def put(url: str, path: str, data: bytes) -> None:
    with fsspec.open(f"{url}/{path}", "wb") as file:
        file.write(data)


def pulled(url: str, there: Store) -> str:
    """What pull said of amy, whose damage must not have ended it for bob."""
    with in_time(20):
        moved = pull(url, there)
    assert "bob" in moved.pointed
    assert there.verify("bob", there.versions("bob")[0])
    assert all(line.isprintable() for line in moved.refused)
    return "\n".join(moved.refused)


@pytest.mark.parametrize("moment", ABSURD, ids=lambda moment: str(moment)[:30])
def test_an_absurd_moment_is_not_pulled(store: Store, url: str, tmp_path: Path, moment: object) -> None:
    version = store.versions("amy")[0]
    put(url, f"amy/{version}/report.json", json.dumps({"published": moment}).encode())
    there = Store(tmp_path / "there")
    assert f"amy@{version} of {url} is refused: report.json: published is" in pulled(url, there)
    assert there.versions("amy") == []
    publish(there, 5.0)


@pytest.mark.parametrize("data", BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("name", ["report.json", "manifest.json", "prompt.safetensors", "live-clip.json"])
def test_a_mirrors_document_that_is_none_is_refused(
    store: Store, url: str, tmp_path: Path, name: str, data: bytes
) -> None:
    version = store.versions("amy")[0]
    put(url, f"amy/{name}" if name == "live-clip.json" else f"amy/{version}/{name}", data)
    assert name in pulled(url, Store(tmp_path / "there"))


@pytest.mark.parametrize("name", ["report.json", "manifest.json", "prompt.safetensors", "live-clip.json"])
def test_nothing_is_fetched_that_is_larger_than_a_store_holds(
    store: Store, url: str, tmp_path: Path, name: str
) -> None:
    version = store.versions("amy")[0]
    path = tmp_path / "mirror" / "amy" / ("" if name == "live-clip.json" else version) / name
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    assert "1099511627776 bytes" in pulled(url, Store(tmp_path / "there"))


def folder(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")


@pytest.mark.parametrize("make", [folder, fifo, link])
@pytest.mark.parametrize("name", ["report.json", "manifest.json", "prompt.safetensors", "live-clip.json"])
def test_what_is_no_file_on_a_mirror_is_refused(
    store: Store, url: str, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    version = store.versions("amy")[0]
    path = tmp_path / "mirror" / "amy" / ("" if name == "live-clip.json" else version) / name
    path.unlink()
    make(path)
    assert "amy" in pulled(url, Store(tmp_path / "there"))


def test_names_on_a_mirror_lead_nowhere(store: Store, url: str, tmp_path: Path) -> None:
    for name in ("..", "base", "Amy", "x" * 80, "a\nb"):
        put(url, f"{name}/live-clip.json", b"{}")
    (tmp_path / "mirror" / "cat").write_text("no folder")
    there = Store(tmp_path / "there")
    pulled(url, there)
    assert there.clients() == ["amy", "bob"]


def test_one_damaged_client_here_does_not_end_a_push_or_a_pull(store: Store, url: str, tmp_path: Path) -> None:
    there = Store(tmp_path / "there")
    pull(url, there)
    (there.root / "amy").rename(tmp_path / "elsewhere")
    (there.root / "amy").symlink_to(tmp_path / "elsewhere")
    publish(store, 2.0, "bob")
    (store.root / "amy" / "live-clip.json").write_bytes(b"[" * 100_000)
    moved = push(store, url)
    assert (moved.pointed, len(moved.refused)) == (["bob"], 1)
    assert "amy is a link" in pulled(url, there)


@pytest.mark.parametrize("data", [*BYTES.values(), b'{"store": 7}', b'{"store": {}}', b"null"])
def test_a_damaged_writer_is_a_sentence(store: Store, url: str, data: Any) -> None:
    put(url, "writer.json", data)
    with pytest.raises(StoreError, match=r"writer\.json"):
        push(store, url)


def test_a_damaged_id_of_this_store_is_a_sentence(store: Store, url: str) -> None:
    (store.root / ".mirror_id").write_bytes(b"\xff\n")
    with pytest.raises(StoreError, match=r"\.mirror_id of the store .* is damaged"):
        push(store, url)
