"""Floods: what one key, or nobody's, sends by the hundred costs the gateway little memory and others little time."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from adapters_store.store import Store
from tests.hostile import floods
from tests.hostile.floods import MIB, Watch, chat, flood, post
from tests.serve.artefacts import publish_lora, publish_prompt
from tests.serve.live import LiveGateway, data_url, noise, running_gateway

CHAT, CLASSIFY = "/v1/chat/completions", "/v1/classify"
Attack = Callable[[int, str], Awaitable[Any]]  # on the gateway at a port, by somebody with a key


def classify(picture: str) -> bytes:
    """The body of a classification request."""
    return json.dumps({"model": "cat", "image": picture}).encode()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway without an engine, which waits two seconds for a header and has thirty connections."""
    store = Store(tmp_path_factory.mktemp("floods") / "store")
    publish_prompt(store, "cat", seed=1)
    publish_prompt(store, "dan", seed=2)
    with running_gateway(store.root, base="none", header_timeout_s=2, max_connections=30) as live:
        yield live


def port_of(live: LiveGateway) -> int:
    """Where it listens."""
    return int(live.url.rpartition(":")[2])


def grown_mib(live: LiveGateway, attack: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    """By how many MiB the gateway was larger at most during the attack, and what came of it."""
    body = {"model": "dan", "image": data_url(noise(1))}
    rest = psutil.Process(live.process.pid).memory_info().rss / MIB
    with Watch(live.url, live.key("dan"), CLASSIFY, body, live.process.pid) as seen:
        found = asyncio.run(attack())  # type: ignore[arg-type]
    assert not seen.failures
    return seen.peak_mib - rest, found


@pytest.mark.parametrize("make", [floods.thin_png, floods.large_webp, lambda: floods.thin_png(8192)])
def test_pictures_that_are_small_to_send_are_small_to_read(small: LiveGateway, make: Callable[[], str]) -> None:
    request = post(CLASSIFY, classify(make()), small.key("cat"))
    grown, answers = grown_mib(small, lambda: flood(port_of(small), request, 8, 20))
    assert {answer[:12] for answer in answers} <= {b"HTTP/1.1 400", b"HTTP/1.1 200"}
    assert grown < 60


def test_large_pictures_are_decoded_one_at_a_time(small: LiveGateway) -> None:
    request = post(CLASSIFY, classify(floods.large_png(3000)), small.key("cat"))
    grown, answers = grown_mib(small, lambda: flood(port_of(small), request, 12, 60))
    assert {answer[:12] for answer in answers} == {b"HTTP/1.1 200"}
    assert grown < 200  # 27 MB a picture


def test_nobody_without_a_key_sends_more_than_a_key(small: LiveGateway) -> None:
    for path in ("/v1/login", CHAT, CLASSIFY):
        grown, still_open = grown_mib(small, lambda path=path: floods.half_sent(port_of(small), path, 20, 4, 4))  # type: ignore[misc]
        assert still_open == 0
        assert grown < 20


def test_a_body_that_does_not_come_is_not_waited_for(small: LiveGateway) -> None:
    for key, status in (("", b"401"), ("ft-wrong", b"401")):
        request = post(CHAT, b"{", key, announced=30 * MIB)
        [answer] = asyncio.run(flood(port_of(small), request, 1, 5))
        assert answer[9:12] == status
    [answer] = asyncio.run(flood(port_of(small), post("/v1/login", b"{", announced=30 * MIB), 1, 5))
    assert answer[9:12] == b"413"


def test_a_header_without_an_end_is_refused(small: LiveGateway) -> None:
    grown, answer = grown_mib(small, lambda: floods.endless_header(port_of(small), 20, 10))
    assert answer[9:12] in (b"", b"400")
    assert grown < 20


def test_slow_connections_come_to_an_end_and_leave_room(small: LiveGateway) -> None:
    grown, still_open = grown_mib(small, lambda: floods.slow(port_of(small), 200, 5))
    assert still_open == 0
    assert grown < 20


def test_a_list_of_a_million_nothings_is_not_parsed(small: LiveGateway) -> None:
    body = b'{"model":"cat","image":[' + b"{}," * (5 * MIB) + b"{}]}"
    grown, answers = grown_mib(small, lambda: flood(port_of(small), post(CLASSIFY, body, small.key("cat")), 4, 20))
    assert {answer[9:12] for answer in answers} <= {b"400", b"429"}
    assert grown < 200


REST_S, AFTER_S = 15.0, 5.0  # the bystander's windows before a flood and after it; a window begins so long after it
MEMORY_MIB = 1024.0

ATTACKS: dict[str, Attack] = {
    "7 thin pictures": lambda port, key: flood(port, post(CHAT, chat("ann", "?", [floods.thin_png()] * 7), key), 1, 30),
    "8 requests of 4 large pictures": lambda port, key: flood(
        port, post(CHAT, chat("ann", "?", [floods.large_png()] * 4, max_tokens=2), key), 8, 40
    ),
    "40 half-sent logins": lambda port, key: floods.half_sent(port, "/v1/login", 40, 30, 20),
    "40 half-sent questions": lambda port, key: floods.half_sent(port, CHAT, 40, 30, 20, key),
    "a header of 250 MiB": lambda port, key: floods.endless_header(port, 250, 20),
    "3000 slow connections": lambda port, key: floods.slow(port, 3000, 25),
    "200 requests": lambda port, key: flood(
        port, post(CHAT, chat("ann", "what color is the circle?", max_tokens=16), key), 200, 30
    ),
    "200 heavy requests": lambda port, key: flood(
        port, post(CHAT, chat("ann", "count " * 60, max_tokens=400, n=4), key), 200, 20
    ),
    "8 prompts of 25 MB": lambda port, key: flood(port, post(CHAT, long_prompt(), key), 8, 30),
    "8 lists of ten million nothings": lambda port, key: flood(
        port, post(CHAT, b'{"model":"ann","messages":[' + b"{}," * (10 * MIB) + b"{}]}", key), 8, 30
    ),
}


def long_prompt() -> bytes:
    """A conversation of 25 MB in as many texts as there may be."""
    messages = [{"role": "user", "content": "circle " * 14_000}] * 256
    return json.dumps({"model": "ann", "messages": messages}).encode()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway as it is by default, with an engine."""
    store = Store(tmp_path_factory.mktemp("floods") / "store")
    for seed, client in enumerate(("ann", "bob")):
        publish_lora(store, client, seed)
    with running_gateway(store.root, clip="none") as live:
        yield live


@pytest.mark.accept
@pytest.mark.parametrize("name", ATTACKS)
def test_a_flood_is_little_to_others_and_soon_over(large: LiveGateway, name: str) -> None:
    asyncio.run(measured(large, ATTACKS[name]))


async def measured(live: LiveGateway, attack: Attack) -> None:
    """The bounds, on whoever asks meanwhile and on the gateway's memory."""
    pid, key = live.process.pid, live.key("ann")
    with Watch(live.url, live.key("bob"), CHAT, floods.small_question("bob"), pid) as seen:
        await asyncio.sleep(1 + REST_S)
        rest = psutil.Process(pid).memory_info().rss / MIB
        began = time.monotonic()
        await attack(port_of(live), key)
        ended = time.monotonic()
        await asyncio.sleep(AFTER_S + REST_S)
    assert not seen.failures
    before = seen.median(began - REST_S, began)
    during = seen.median(began, ended) if ended - began > 2 else before
    after = seen.median(ended + AFTER_S, ended + AFTER_S + REST_S)
    grown = seen.peak_mib - rest
    print(f"rest {before:.3f} s, during {during:.3f} s, after {after:.3f} s, +{grown:.0f} MiB")
    assert grown <= MEMORY_MIB
    assert during <= 3 * before
    assert after <= 1.2 * before


@pytest.mark.accept
def test_what_nobody_waits_for_any_more_ends_in_the_engine_within_a_second(large: LiveGateway) -> None:
    question, key = floods.small_question("bob"), large.key("bob")
    heavy = post(CHAT, chat("ann", "count " * 60, max_tokens=400, n=8), large.key("ann"))

    def seconds() -> float:
        began = time.monotonic()
        answer = httpx.post(f"{large.url}{CHAT}", json=question, headers={"Authorization": f"Bearer {key}"}, timeout=60)
        assert answer.status_code == 200
        return time.monotonic() - began

    before = sorted(seconds() for _ in range(15))[7]
    asyncio.run(flood(port_of(large), heavy, 30, 4))
    time.sleep(1)
    after = sorted(seconds() for _ in range(15))[7]
    print(f"rest {before:.3f} s, after {after:.3f} s")
    assert after <= 1.2 * before


def test_the_house_is_quiet_afterwards(small: LiveGateway, tmp_path: Path) -> None:
    """Last: nothing that was thrown at it left a trace in the log beyond a line."""
    log = small.log()
    assert "Traceback" not in log, log[-3000:]
