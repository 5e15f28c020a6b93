"""Whatever lies in one client's folder, it is refused with a sentence, nothing waits for it, and the others go on."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters_store.store import Store, StoreError
from tests.adapters_store.artefacts import lora_files, manifest, prompt_files
from tests.adapters_store.damage import BYTES, SPECIAL, in_time, said, sentence, state

OWN = ("manifest.json", "report.json", "prompt.safetensors")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two versions of amy, one of bob."""
    store = Store(tmp_path / "published")
    for value in (1.0, 2.0):
        store.publish(manifest(), prompt_files(value), {"value": value}, activate=True)
    store.publish(manifest("bob"), prompt_files(1.0), {}, activate=True)
    return store


def live(store: Store) -> str:
    found = store.live("amy")
    assert found is not None
    return found.version


@pytest.mark.parametrize("data", BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("name", ["manifest.json", "report.json"])
def test_bytes_that_are_no_document_are_refused_by_name(store: Store, name: str, data: bytes) -> None:
    version, bob = live(store), state(store, "bob")
    (store.root / "amy" / version / name).write_bytes(data)
    for call in (store.artefact, store.verify):
        with pytest.raises(StoreError, match=f"amy@{version}: .*{name}"):
            call("amy", version)
    said(store, "amy", version)
    assert state(store, "bob") == bob


@pytest.mark.parametrize("data", BYTES.values(), ids=BYTES)
def test_a_pointer_that_is_no_document_is_refused_and_repaired_by_activating(store: Store, data: bytes) -> None:
    version, bob = live(store), state(store, "bob")
    (store.root / "amy" / "live-clip.json").write_bytes(data)
    for call in (store.live, store.rollback):
        with pytest.raises(StoreError, match=r"live-clip\.json of client 'amy' is damaged"):
            call("amy")
    assert store.clients() == ["amy", "bob"]
    assert state(store, "bob") == bob
    store.activate("amy", version)
    assert live(store) == version


@pytest.mark.parametrize("data", BYTES.values(), ids=BYTES)
def test_an_adapters_configuration_that_is_no_document_is_refused(store: Store, data: bytes) -> None:
    with pytest.raises(StoreError, match=r"adapter_config\.json"):
        store.publish(manifest(family="mllm"), lora_files() | {"adapter_config.json": data}, {}, activate=True)


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("place", [*(f"VERSION/{name}" for name in OWN), "VERSION", "live-clip.json", ""])
def test_what_is_no_regular_file_is_refused_and_waited_for_by_nobody(
    store: Store, place: str, make: Callable[[Path], None]
) -> None:
    version, bob = live(store), state(store, "bob")
    path = store.root / "amy" / place.replace("VERSION", version)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)
    with in_time(), pytest.raises(StoreError, match="amy"):
        store.live("amy") if place == "live-clip.json" else store.verify("amy", version)
    said(store, "amy", version)
    with in_time():
        assert state(store, "bob") == bob


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)
@pytest.mark.parametrize("place", [".staging", "amy/.lock", "bob/.lock", ".staging/left", "stray", "amy/stray"])
def test_what_stands_in_a_writers_way_is_a_sentence_and_no_reader_minds(
    store: Store, place: str, make: Callable[[Path], None]
) -> None:
    version, bob = live(store), state(store, "bob")
    path = store.root / place
    if path.exists():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)
    assert state(store, "bob") == bob
    store.verify("amy", version)
    said(store, "amy", version)


def test_a_client_folder_elsewhere_is_not_followed(store: Store, tmp_path: Path) -> None:
    version = live(store)
    (store.root / "amy").rename(tmp_path / "elsewhere")
    (store.root / "amy").symlink_to(tmp_path / "elsewhere")
    assert store.clients() == ["amy", "bob"]  # so that whoever follows the store hears why
    for refusal in said(store, "amy", version).values():
        assert "amy is a link" in refusal
    assert set(said(store, "amy", version)) > {"versions", "live", "artefact", "publish"}


@pytest.mark.parametrize("name", ["manifest.json", "report.json", "live-clip.json", "prompt.safetensors"])
def test_a_file_of_a_terabyte_is_not_read(store: Store, name: str) -> None:
    version, bob = live(store), state(store, "bob")
    path = store.root / "amy" / ("" if name == "live-clip.json" else version) / name
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # sparse: it takes no space
    with in_time(), pytest.raises(StoreError, match=r"1099511627776 bytes"):
        store.live("amy") if name == "live-clip.json" else store.verify("amy", version)
    said(store, "amy", version)
    assert state(store, "bob") == bob


def test_a_folder_full_of_files_and_one_of_a_great_depth_are_refused(store: Store) -> None:
    first, second = store.versions("amy")
    for number in range(5000):
        (store.root / "amy" / first / f"{number}.txt").touch()
    deep = store.root / "amy" / second
    for _ in range(300):
        deep = deep / "d"
        deep.mkdir()
    for version in (first, second):
        with in_time(), pytest.raises(StoreError, match="not in the manifest"):
            store.verify("amy", version)
    said(store, "amy", second)


def mutated(data: bytes, choose: random.Random) -> bytes:
    """The bytes with a few of them changed, cut, doubled or put in."""
    changed = bytearray(data)
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(changed) + 1)
        match choose.randrange(5):
            case 0:
                changed[at : at + 1] = bytes([choose.randrange(256)])
            case 1:
                del changed[at : at + choose.randint(1, 40)]
            case 2:
                changed[at:at] = changed[at : at + choose.randint(1, 40)]
            case 3:
                changed[at:at] = choose.choice([b"[", b"{", b'"', b"-", b"1e999", b"null", b"\\ud800", b"9" * 30])
            case 4:
                changed[at : at + 8] = choose.randbytes(8)
    return bytes(changed)


@pytest.mark.parametrize("name", [*OWN, "live-clip.json"])
def test_changed_bytes_of_a_version_only_ever_bring_sentences(store: Store, name: str) -> None:
    choose, version, bob = random.Random(f"{name} 0"), live(store), state(store, "bob")
    sound = store.root.with_name("sound")
    shutil.copytree(store.root / "amy", sound)
    for _ in range(25):
        path = store.root / "amy" / ("" if name == "live-clip.json" else version) / name
        path.write_bytes(mutated(path.read_bytes(), choose))
        said(store, "amy", version)
        assert state(store, "bob") == bob
        shutil.rmtree(store.root / "amy")
        shutil.copytree(sound, store.root / "amy")


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors", "prompt.safetensors"])
def test_changed_bytes_of_an_adapter_only_ever_bring_sentences(store: Store, name: str) -> None:
    choose = random.Random(f"{name} 1")
    files, family = (prompt_files(), "clip") if name.startswith("prompt") else (lora_files(), "mllm")
    for _ in range(300):
        refusal = sentence(lambda: publish_mutated(store, family, files, name, choose))
        assert refusal is None or refusal.isprintable()


def publish_mutated(store: Store, family: str, files: dict[str, bytes], name: str, choose: random.Random) -> str:
    changed = files | {name: mutated(files[name], choose)}
    return store.publish(manifest("cat", family), changed, {}, activate=True)


VALUES = [
    None,
    True,
    False,
    0,
    -1,
    10**9,
    10**30,
    1e308,
    "",
    "x" * 9999,
    [],
    [[]],
    {},
    ["x", 1],
    {"a": {}},
    "\n(",
    [None],
]


def test_changed_fields_of_a_manifest_only_ever_bring_sentences(store: Store) -> None:
    version = live(store)
    path = store.root / "amy" / version / "manifest.json"
    sound = json.loads(path.read_bytes())
    paths = [(key,) for key in sound] + [
        (key, inner) for key in sound if isinstance(sound[key], dict) for inner in sound[key]
    ]
    for keys in paths:
        for value in VALUES:
            document = json.loads(json.dumps(sound))
            at = document
            for key in keys[:-1]:
                at = at[key]
            at[keys[-1]] = value
            path.write_text(json.dumps(document))
            refusal = sentence(lambda: store.verify("amy", version))
            if refusal is None:  # it means the same as before: 64.0 for 64, a default left out
                assert store.artefact("amy", version).manifest.version == version
            else:
                assert f"amy@{version}" in refusal
