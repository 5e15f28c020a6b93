"""More than a hundred forged artefacts, one after the other, while two other tenants are asked without pause."""

import statistics
import time
from collections.abc import Iterator

import pytest

from adapters_store.store import Store
from tests.hostile.bystanders import bystanders
from tests.hostile.forged import FORGERIES, POINTERS, put
from tests.serve.artefacts import publish_lora
from tests.serve.live import LiveGateway, running_gateway

pytestmark = [pytest.mark.accept, pytest.mark.timeout(3000)]

FOLLOWED_WITHIN_S = 2.0
SOUND_AFTER_ALL = {  # forged, and yet what the store and the gateway make of them hurts nobody
    "JSON: published in 9999",
    "JSON: published as a list",
    "patterns: all linear",
    "connectors: half a connector",
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """As anybody starts it. ``ann`` and ``bob`` are asked, ``mal`` is somebody else's, ``next`` has new versions."""
    store = Store(tmp_path_factory.mktemp("forged") / "store")
    for seed, client in enumerate(("ann", "bob", "mal")):
        publish_lora(store, client, seed)
    with running_gateway(store.root, clip="none") as live:
        yield live


def test_each_is_refused_and_nobody_else_notices(gateway: LiveGateway) -> None:
    store, seconds, late, unready = gateway.store, [], [], []
    nexts = [publish_lora(store, "next", seed) for seed in (70, 71)]
    sound = store.versions("mal")[0]
    gateway.wait_for("mal", sound)
    answering: dict[str, str] = {}
    with bystanders(gateway, "ann", "bob") as heard, gateway.http() as http:
        for number, (name, forgery) in enumerate(FORGERIES.items()):
            version = put(store, "mal", forgery, 1000 + number)
            store.activate("next", nexts[number % 2])
            seconds.append(gateway.wait_for("next", nexts[number % 2], 30))
            late += [f"{name}: {seconds[-1]:.1f} s"] if seconds[-1] > FOLLOWED_WITHIN_S else []
            ready = http.get("/readyz")
            unready += [name] if ready.status_code != 200 or not ready.json()["ready"] else []
            found = settled(gateway, version)
            write_back(store, sound)
            if found != sound:
                answering[name] = found
                gateway.wait_for("mal", sound)
        for name, content in POINTERS.items():
            pointer = store.root / "mal" / "live-mllm.json"
            pointer.unlink()
            content(pointer) if callable(content) else pointer.write_bytes(content)
            store.activate("next", nexts[0])
            store.activate("next", nexts[1])
            gateway.wait_for("next", nexts[1], 30)
            unready += [] if http.get("/readyz").status_code == 200 else [name]
            write_back(store, sound)
    print(f"{len(FORGERIES)} artefacts, {len(POINTERS)} pointers; {heard.right} right answers beside them, median "
          f"{statistics.median(heard.seconds):.2f} s; next versions followed in {statistics.median(seconds):.2f} s, "
          f"{max(seconds):.2f} s at most")  # fmt: skip
    assert heard.wrong == []
    assert late == []
    assert unready == []
    assert answering.keys() <= SOUND_AFTER_ALL
    assert len(FORGERIES) >= 100


def settled(gateway: LiveGateway, version: str) -> str:
    """What answers for ``mal`` once the forged version was either refused or taken."""
    deadline = time.monotonic() + 20
    with gateway.http() as http:
        while True:
            answer = http.get("/v1/clients/mal")
            found = answer.json() if answer.status_code == 200 else {}
            if version in found.get("refused", {}) or found.get("answering") == version:
                return str(found["answering"])
            assert time.monotonic() < deadline, (answer.status_code, answer.text[:500])
            time.sleep(0.05)


def write_back(store: Store, sound: str) -> None:
    """Points at the sound version again."""
    pointer = store.root / "mal" / "live-mllm.json"
    if pointer.is_dir() and not pointer.is_symlink():
        pointer.rmdir()
    pointer.unlink(missing_ok=True)
    pointer.write_text(f'{{"version": "{sound}"}}')
