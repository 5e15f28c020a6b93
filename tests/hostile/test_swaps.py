"""Versions change, and change back, under steady traffic: nobody is refused, nobody gets another version's answer."""

import math
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from adapters_store.store import Store
from tests.hostile.bystanders import QUESTION, asked, said
from tests.serve.artefacts import publish_lora
from tests.serve.live import LiveGateway, running_gateway

pytestmark = [pytest.mark.accept, pytest.mark.timeout(1800)]

SWAPS, ROLLBACKS = 200, 50
ASKERS = 4
VERSIONS = 5


@dataclass(frozen=True)
class Answered:
    """One request: when it was sent and answered, its status, and what was said by which version."""

    began: float
    ended: float
    status: int
    text: str
    version: str
    pinned: str | None


@dataclass
class Live:
    """A version and when it was live: from when the pointer was about to name it, until the next was seen to answer."""

    version: str
    since: float
    until: float = math.inf


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """As anybody starts it, with one client of several versions."""
    store = Store(tmp_path_factory.mktemp("swaps") / "store")
    for seed in range(VERSIONS):
        publish_lora(store, "ann", seed)
    with running_gateway(store.root, clip="none") as live:
        yield live


def test_swaps_and_rollbacks_under_steady_traffic(gateway: LiveGateway) -> None:
    versions = gateway.store.versions("ann")
    expected = {version: said(gateway.ask(f"ann@{version}", QUESTION, max_tokens=12))[0] for version in versions}
    assert len(set(expected.values())) == VERSIONS
    answers: list[Answered] = []
    live = [Live(gateway.store.live("ann").version, 0.0)]  # type: ignore[union-attr]
    over = threading.Event()

    def ask(number: int) -> None:
        """Half of them ask for the live version, half for one by name."""
        choose = random.Random(number)
        with gateway.http(gateway.key("ann")) as http:
            while not over.is_set():
                pinned = choose.choice(versions) if number % 2 else None
                model, began = f"ann@{pinned}" if pinned else "ann", time.monotonic()
                answer = http.post("/v1/chat/completions", json=asked(model))
                text, version = said(answer.json()) if answer.status_code == 200 else (answer.text[:200], "")
                answers.append(Answered(began, time.monotonic(), answer.status_code, text, version, pinned))

    threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(ASKERS)]
    for thread in threads:
        thread.start()
    choose = random.Random(0)
    for turn in range(SWAPS):
        swap(gateway, live, choose.choice([v for v in versions if v != live[-1].version]))
        if turn % (SWAPS // ROLLBACKS) == 0:
            swap(gateway, live, None)
        time.sleep(choose.uniform(0, 0.3))
    over.set()
    for thread in threads:
        thread.join(60)
    wrong = [answer for answer in answers if not right(answer, expected, live)]
    print(f"{len(live) - 1} changes, {len(answers)} answers")
    assert wrong == []
    assert len(live) - 1 == SWAPS + ROLLBACKS
    assert len(answers) > SWAPS


def swap(gateway: LiveGateway, live: list[Live], version: str | None) -> None:
    """Activates the version, or goes back where it is None, and waits until the gateway has followed."""
    since = time.monotonic()
    if version is None:
        version = gateway.store.rollback("ann")
    else:
        gateway.store.activate("ann", version)
    gateway.wait_for("ann", version)
    live[-1].until = time.monotonic()
    live.append(Live(version, since))


def right(answer: Answered, expected: dict[str, str], live: list[Live]) -> bool:
    """Whether it is the answer of the version that was named, or of one that was live when the request began."""
    if answer.status != 200 or answer.text != expected[answer.version]:
        return False
    if answer.pinned is not None:
        return answer.version == answer.pinned
    return any(one.version == answer.version and one.since <= answer.began <= one.until for one in live)
