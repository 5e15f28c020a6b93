"""The HTTP client of the page, where the gateway misbehaves; where it behaves, see test_page.py."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from tests.ui import bad_gateway
from ui.gateway import BROKE_OFF, UNAVAILABLE, Gateway, GatewayError


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with bad_gateway.running() as url:
        yield Gateway(url, timeout_s=1.0)


def refusal(call: Coroutine[Any, Any, object]) -> str:
    with pytest.raises(GatewayError) as refused:
        asyncio.run(call)
    return str(refused.value)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("html", UNAVAILABLE),
        ("marked", "The key <b>marked</b> is unknown."),
        ("nothing", "The gateway answered something this page does not understand."),
        ("text", "The gateway answered something this page does not understand."),
    ],
)
def test_every_odd_answer_is_a_sentence(gateway: Gateway, key: str, sentence: str) -> None:
    assert refusal(gateway.login(key)) == sentence


def test_a_slow_gateway_is_not_waited_for_longer_than_asked(gateway: Gateway) -> None:
    assert refusal(gateway.describe("key", "amy")) == "The gateway did not answer within 1 seconds."


def test_no_gateway_is_a_sentence() -> None:
    assert refusal(Gateway("http://127.0.0.1:9", 1.0).login("key")).startswith("The gateway cannot be reached")


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        ("error", BROKE_OFF),
        ("broken", "The gateway cannot be reached; try again in a moment."),
        ("garbage", "The gateway answered something this page does not understand."),
        ("done", None),
    ],
)
def test_a_stream_gives_what_came_and_says_how_it_broke_off(
    gateway: Gateway, ending: str, sentence: str | None
) -> None:
    pieces: list[str] = []

    async def read() -> None:
        async for piece in gateway.ask("key", ending, "What is it?", None):
            assert piece.source["client"] == "amy"
            pieces.append(piece.text)

    if sentence is None:
        asyncio.run(read())
    else:
        assert refusal(read()) == sentence
    assert pieces == ["a red "]
