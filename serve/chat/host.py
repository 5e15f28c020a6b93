"""The engine as a place for adapters: loads one, tries it, forgets it; and its connector with it."""

import asyncio
import logging
from pathlib import Path

from adapters_store.bases.lora_fit import check_linears, linear_shapes
from serve.chat.soft_tokens import SoftTokens
from serve.chat.templates import Prompts
from serve.engine.client import EngineClient
from serve.engine.magnitude import check_magnitude, linear_norms
from serve.engine.probe import SELF_TEST, Probe, write_overflowing
from serve.engine.process import Engine
from serve.errors import EngineUnreachableError, GatewayError
from serve.settings import Settings
from serve.versions.subjects import Subject

log = logging.getLogger(__name__)


class EngineHost:
    """Where adapters over the LLaVA base live. ``generation`` changes when everything loaded before is gone."""

    def __init__(
        self,
        engine: Engine,
        soft_tokens: SoftTokens,
        prompts: Prompts,
        exported: Path,
        base: Subject,
        settings: Settings,
    ) -> None:
        """``exported``: the checkpoint that the engine runs; ``base``: the subject that is the base itself."""
        self._engine = engine
        self._soft_tokens = soft_tokens
        self._prompts = prompts
        self._linears = linear_shapes(exported)
        self._norms = linear_norms(exported)
        self._most = settings.max_update_ratio
        self._probe = Probe(exported)
        self._base = base
        self._overflowing = write_overflowing(base.folder, engine.private / "self-test")
        self._proven: int | None = None  # the generation that is known to tell numbers that are not finite
        self._tried: set[str] = set()  # names whose bytes passed the probe, which a restart does not change
        self._loading = asyncio.Lock()  # one at a time: an engine that ends meanwhile ended over that one
        self.base_id = base.base_id
        self.max_rank: int | None = settings.max_lora_rank
        self.capacity: int | None = max(settings.max_cpu_loras, settings.max_loras)

    @property
    def generation(self) -> int | None:
        """The engine's start this belongs to, or None while it is not up."""
        return self._engine.generation if self._engine.state == "up" else None

    def require_up(self) -> None:
        """503 while the engine is not up."""
        self._engine.require_up()

    async def load(self, subject: Subject) -> None:
        """Loads the adapter and tries it: numbers that are not finite show here and not to a user.

        ValueError where the adapter, its connector, its template or its images do not fit the base, or where it may do
        too much to it.
        """
        await self._prompts.check(subject.prompt_template)
        await asyncio.to_thread(check_linears, subject.folder, self._linears)
        await asyncio.to_thread(check_magnitude, subject.folder, self._norms, self._most)
        await self._soft_tokens.load(subject)
        try:
            async with self._loading:
                client = self._engine.require_up()
                await self._prove(client)
                await self._load_adapter(client, subject)
        except (GatewayError, ValueError):
            self._soft_tokens.unload(subject)
            raise

    async def unload(self, subject: Subject) -> None:
        """Makes room; nothing to do where the engine has been started anew since."""
        self._soft_tokens.unload(subject)
        client = self._engine.require_up()
        if subject.name in await client.models():
            await client.unload(subject.name)

    async def sound(self) -> bool:
        """Whether the base's own numbers are finite. An engine in which they are not is started anew at once."""
        client = self._engine.require_up()
        if self._base.name not in await client.models() or await self._probe.passes(client, self._base.name):
            return True
        log.error("numbers of the base itself are not finite: the engine is started anew")
        self._engine.condemn()
        return False

    async def _load_adapter(self, client: EngineClient, subject: Subject) -> None:
        if subject.name not in await client.models():
            await client.load(subject.name, subject.folder)
        if subject.name in self._tried:
            return
        try:
            passed = await self._probe.passes(client, subject.name)
        except EngineUnreachableError:
            raise
        except GatewayError:
            await client.unload(subject.name)
            raise
        if passed:
            self._tried.add(subject.name)
            return
        await client.unload(subject.name)
        if not (subject.name == self._base.name or await self.sound()):
            raise EngineUnreachableError  # the engine is at fault, not this version
        raise ValueError("its numbers are not finite over the probe's tokens")

    async def _prove(self, client: EngineClient) -> None:
        """Once a start: an adapter that overflows must be told as such, else no adapter at all may be loaded."""
        if self._proven == self._engine.generation:
            return
        if SELF_TEST in await client.models():
            await client.unload(SELF_TEST)
        await client.load(SELF_TEST, self._overflowing)
        told = not await self._probe.passes(client, SELF_TEST)
        await client.unload(SELF_TEST)
        if not told:
            raise ValueError("this engine does not tell numbers that are not finite, so that tenants are not apart")
        self._proven = self._engine.generation
