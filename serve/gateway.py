"""The gateway's parts, put together once: keys, store, engine, encoders, and who answers what."""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from adapters_store.bases.frozen import base_id, export_base
from adapters_store.store import Store, StoreError
from adapters_store.versions.manifest import Family
from serve.chat.conversation import Chat
from serve.chat.host import EngineHost
from serve.chat.soft_tokens import SoftTokens
from serve.chat.templates import Prompts
from serve.classify.classifier import Classifier
from serve.engine.private_folder import PrivateFolder
from serve.engine.process import Engine
from serve.engine.zero_adapter import write_zero_adapter
from serve.errors import GatewayError, invalid, not_opened
from serve.http.admission import Admission
from serve.http.auth import Access, Keys
from serve.metrics import Metrics
from serve.pictures.decoding import Decoder
from serve.settings import Settings
from serve.versions.copies import Copies
from serve.versions.follow import Adapters
from serve.versions.loaded_versions import Host, LoadedVersion
from serve.versions.subjects import Subject, of_base

log = logging.getLogger(__name__)


class Gateway:
    """Everything behind the routes. ``start`` returns once requests can be taken; the engine follows by itself."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.store)
        self.keys = Keys(settings.store)
        self.metrics = Metrics()
        self.admission = Admission(settings)
        self.decoder = Decoder(settings)
        self.engine: Engine | None = None
        self._chat: Chat | None = None
        self._classifier: Classifier | None = None
        self._soft_tokens: SoftTokens | None = None
        self._prompts: Prompts | None = None
        self._adapters: Adapters | None = None
        self._watch: asyncio.Task[None] | None = None
        self._private = PrivateFolder()

    async def start(self) -> None:
        """Starts the engine first, since it takes longest, and loads the encoders meanwhile."""
        await asyncio.to_thread(self.store.close_to_others)
        torch.set_num_threads(self.settings.torch_threads)
        hosts: dict[str, Host] = {}
        fixed: list[Subject] = []
        if self.settings.base is not None:
            hosts["mllm"], base = await self._start_engine(self.settings.base)
            fixed.append(base)
        if self.settings.clip is not None:
            self._classifier = await asyncio.to_thread(Classifier, self.settings.clip, self.settings, self.metrics)
            hosts["clip"] = self._classifier
        copies = Copies(self._private.path / "versions")
        self._adapters = Adapters(self.store, hosts, fixed, copies, self.settings)
        self._watch = asyncio.create_task(self._adapters.run(), name="adapters")

    async def stop(self) -> None:
        """Ends everything that was started."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            await self.adapters.close()
        for part in (self._soft_tokens, self._prompts, self._classifier):
            if part is not None:
                await part.close()
        self.decoder.close()
        if self.engine is not None:
            await self.engine.stop()
        self._private.remove()

    @property
    def adapters(self) -> Adapters:
        """The versions in use, once started."""
        assert self._adapters is not None, "the gateway has not been started"
        return self._adapters

    async def _start_engine(self, base: Path) -> tuple[EngineHost, Subject]:
        began = time.monotonic()
        identity = await asyncio.to_thread(base_id, base, self.settings.nf4)
        exported = await asyncio.to_thread(
            export_base, base, self.settings.exports, self.settings.nf4, self.settings.dtype
        )
        self.engine = Engine(exported, self._private.path, self.settings, self._engine_changed)
        self.engine.start()
        await asyncio.sleep(0)  # the process is started before the encoders take the time
        self._soft_tokens = await asyncio.to_thread(SoftTokens, base, self.settings, self.metrics)
        self._prompts = Prompts(base)
        self._chat = Chat(base, self.engine, self._soft_tokens, self._prompts, self.decoder, self.settings, self._fault)
        subject = of_base(base, identity, write_zero_adapter(exported, self._private.path / "zero"))
        log.info("base %s (%s), encoders ready after %.1f s", identity, base, time.monotonic() - began)
        return await asyncio.to_thread(
            EngineHost, self.engine, self._soft_tokens, self._prompts, exported, subject, self.settings
        ), subject

    async def _fault(self, subject: Subject, why: str) -> None:
        await self.adapters.quarantine(subject, why)

    def _engine_changed(self) -> None:
        if self._adapters is not None:
            self._adapters.wake()

    @property
    def ready(self) -> bool:
        """Whether everything that was asked for at the start can answer."""
        return self._adapters is not None and self._adapters.ready

    def readiness(self) -> dict[str, Any]:
        """Whether requests are answered, and how much of the store answers; names nobody."""
        engine = "none" if self.engine is None else self.engine.state
        clients = {} if self._adapters is None else self._adapters.counts()
        return {"ready": self.ready, "engine": engine, **clients}

    async def lease(self, access: Access, model: str, family: Family) -> LoadedVersion:
        """What answers under that model name, for whoever holds the key; 404 where it opens none of that name.

        400 where that is asked for what another family does.
        """
        client, _, version = model.partition("@")
        if not access.allows(client):
            raise not_opened(model)
        if "@" in model and not version:
            raise invalid(f"model {model!r} names no version after the @", "model")
        return await self.adapters.lease(client, family, version or None)

    def require_open(self, authorization: str | None, client: str) -> None:
        """401 or 404 once the key has been taken away, or this client from it."""
        if not self.keys.authenticate(authorization).allows(client):
            raise not_opened(client)

    def require_known(self, client: str) -> None:
        """404 where the store has no client of that id."""
        try:
            known = self.store.versions(client)
        except StoreError as error:
            raise GatewayError(404, str(error), "model") from error
        if not known:
            raise GatewayError(404, f"client {client!r} is not known here", "model")

    @property
    def chat(self) -> Chat:
        """Answers with whatever was leased for it, once started."""
        assert self._chat is not None, "no engine was started"
        return self._chat

    @property
    def classifier(self) -> Classifier:
        """Sorts pictures with whatever was leased for it, once started."""
        assert self._classifier is not None, "no dual encoder was loaded"
        return self._classifier

    def models(self, access: Access) -> list[dict[str, Any]]:
        """What the key may use and what answers now, as OpenAI lists models: a client once, whatever it answers."""
        names = [*self.store.clients(), "base"]
        found = [self.adapters.answering(name) for name in names if access.allows(name)]
        return [_model(subjects) for subjects in found if subjects]


def _model(subjects: Sequence[Subject]) -> dict[str, Any]:
    """A client's entry; ``family`` and ``version`` are of the first of its families."""
    first = subjects[0]
    families = {subject.family: {"version": subject.version, "base": subject.base_id} for subject in subjects}
    about = {**first.identity, "family": first.family, "families": families}
    return {"id": first.client, "object": "model", "created": 0, "owned_by": "fedtailor", "fedtailor": about}
