"""gc frees a disk that is full: nothing it must do first needs space."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adapters_store.store import Store, StoreError
from tests.adapters_store.artefacts import manifest, prompt_files

GC = """
import errno, json, resource, signal, sys
from adapters_store.store import Store, StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # from here on every write fails, as on a full disk
try:
    open(sys.argv[1] + "/probe", "wb", 0).write(b"x")
    sys.exit("a byte could be written")
except OSError as error:
    assert error.errno == errno.EFBIG
print(json.dumps(Store(sys.argv[1]).gc(int(sys.argv[2]))))
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Four versions of amy and of bob, the last of each live."""
    store = Store(tmp_path / "published")
    for client in ("amy", "bob"):
        for value in range(4):
            store.publish(manifest(client), prompt_files(float(value)), {}, activate=True)
    return store


def gc_on_a_full_disk(store: Store, keep: int) -> list[str]:
    command = [sys.executable, "-c", GC, str(store.root), str(keep)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    removed: list[str] = json.loads(ran.stdout)
    return removed


def test_old_versions_go_though_no_byte_can_be_written(store: Store) -> None:
    versions = {client: store.versions(client) for client in ("amy", "bob")}
    left = store.root / ".staging" / "left"
    left.mkdir()
    assert gc_on_a_full_disk(store, 1) == [f"{client}@{v}" for client in versions for v in versions[client][:2]]
    for client in versions:
        assert store.versions(client) == versions[client][2:]
        live = store.live(client)
        assert live is not None
        assert live.version == versions[client][3]
        assert store.rollback(client) == versions[client][2]
    assert [path.name for path in left.parent.iterdir()] == ["left"]  # a writer's that may still be alive


def test_what_it_could_not_write_the_next_one_writes(store: Store) -> None:
    gc_on_a_full_disk(store, 1)
    assert store.gc(1) == []
    live = store.live("amy")
    assert live is not None
    assert set(live.previous) < set(store.versions("amy"))


def test_a_store_that_never_staged_anything_can_be_freed(store: Store) -> None:
    shutil.rmtree(store.root / ".staging")
    assert len(gc_on_a_full_disk(store, 0)) == 6


def test_a_damaged_client_does_not_keep_the_others_from_being_cleaned(store: Store) -> None:
    (store.root / "amy" / "live-clip.json").write_text("{")
    bob = store.versions("bob")
    with pytest.raises(
        StoreError, match=r"3 versions were removed; of 1 clients none: live-clip\.json of client 'amy'"
    ):
        store.gc(0)
    assert (len(store.versions("amy")), store.versions("bob")) == (4, bob[3:])
