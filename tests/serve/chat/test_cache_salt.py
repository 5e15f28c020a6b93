"""What the engine caches for one owner of a key is not there for another."""

import asyncio
from typing import Any

from serve.chat.conversation import Chat, Question
from serve.chat.soft_tokens import SoftTokens
from serve.metrics import Metrics
from serve.settings import Settings
from serve.versions.subjects import of_base
from tests.serve.artefacts import LLAVA

SUBJECT = of_base(LLAVA, "0" * 16, LLAVA)


def test_the_salt_of_the_engines_cache_is_the_owners() -> None:
    """Of the same question, asked by three keys of two owners."""

    async def requests() -> list[dict[str, Any]]:
        settings, nothing = Settings(), None
        soft = SoftTokens(LLAVA, settings, Metrics())
        chat = Chat(LLAVA, nothing, soft, nothing, nothing, settings, nothing)  # type: ignore[arg-type]
        asked = [Question(SUBJECT, owner, "hello", (), {}, 1, False) for owner in ("ann", "bob", "ann")]
        bodies = [await chat._engine_request(question) for question in asked]
        await soft.close()
        return bodies

    ann, bob, again = asyncio.run(requests())
    assert ann["cache_salt"] != bob["cache_salt"]
    assert ann == again
    assert {**ann, "cache_salt": ""} == {**bob, "cache_salt": ""}
