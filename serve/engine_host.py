"""The engine as a place for adapters: loads one, tries it, forgets it; and its connector with it."""

import asyncio
from pathlib import Path

from serve.engine import Engine
from serve.errors import GatewayError
from serve.fit import check_fit, linear_shapes
from serve.soft_tokens import SoftTokens
from serve.subjects import Subject

PROBE = {"messages": [{"role": "user", "content": "?"}], "temperature": 0, "max_tokens": 1, "logprobs": True}


class EngineHost:
    """Where adapters over the LLaVA base live. ``generation`` changes when everything loaded before is gone."""

    def __init__(self, engine: Engine, soft_tokens: SoftTokens, base: Path, base_id: str, max_rank: int) -> None:
        self._engine = engine
        self._soft_tokens = soft_tokens
        self._linears = linear_shapes(base)
        self.base_id = base_id
        self.max_rank: int | None = max_rank

    @property
    def generation(self) -> int | None:
        """The engine's start this belongs to, or None while it is not up."""
        return self._engine.generation if self._engine.state == "up" else None

    def require_up(self) -> None:
        """503 while the engine is not up."""
        self._engine.require_up()

    async def load(self, subject: Subject) -> None:
        """Loads the adapter, and has it say one token: a number that is not finite shows here and not to a user.

        ValueError where the adapter, its connector or its images do not fit the base.
        """
        await asyncio.to_thread(check_fit, subject.folder, self._linears)
        await self._soft_tokens.load(subject)
        try:
            await self._load_adapter(subject)
        except GatewayError:
            self._soft_tokens.unload(subject)
            raise

    async def _load_adapter(self, subject: Subject) -> None:
        client = self._engine.require_up()
        if subject.name not in await client.models():
            await client.load(subject.name, subject.folder)
        try:
            await client.chat(PROBE | {"model": subject.name, "cache_salt": subject.client})
        except GatewayError:
            await client.unload(subject.name)
            raise

    async def unload(self, subject: Subject) -> None:
        """Makes room; nothing to do where the engine has been started anew since."""
        self._soft_tokens.unload(subject)
        client = self._engine.require_up()
        if subject.name in await client.models():
            await client.unload(subject.name)
