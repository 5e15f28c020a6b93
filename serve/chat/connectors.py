"""Connectors in memory: read from their version's folder, kept within a bound, the least recently used given up first.

A connector is known by the SHA-256 of its file, so versions with the same one share it.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from adapters_store.personal.connector import CONNECTOR, Connector, read_connector
from serve.chat.connector_batch import BatchedConnector, FrozenByDigest, batched, connect
from serve.chat.vision import Vision
from serve.errors import unavailable
from serve.metrics import Metrics
from serve.settings import MIB, Settings
from serve.versions.subjects import Subject


@dataclass
class _Kept:
    connector: BatchedConnector
    users: int = 0


class Connectors:
    """The connectors of the versions in use. Those that an answer needs now are never given up."""

    def __init__(self, vision: Vision, settings: Settings, metrics: Metrics) -> None:
        self._vision = vision
        self._max_bytes = settings.connector_mib * MIB
        self._metrics = metrics
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # the least recently used first
        self._frozen: FrozenByDigest = FrozenByDigest()
        self._reading = asyncio.Lock()  # one file at a time: whoever waited for the same one finds it
        metrics.connector_memory(lambda: self.nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is in memory, shared adapters counted once."""
        own = sum(kept.connector.nbytes for kept in self._kept.values())
        frozen = [reference() for reference in self._frozen.valuerefs()]  # a list: a file may be read meanwhile
        return own + sum(adapter.nbytes for adapter in frozen if adapter is not None)

    async def load(self, subject: Subject) -> None:
        """Reads the version's connector and tries it. ValueError where it does not fit the base."""
        if subject.connector is not None:
            kept = await self._get(subject, subject.connector)
            try:
                await asyncio.to_thread(self._try, kept.connector)
            except ValueError:
                self.unload(subject)
                raise

    def unload(self, subject: Subject) -> None:
        """Forgets the version's connector; another version that has the same one reads it again."""
        if subject.connector is not None:
            self._kept.pop(subject.connector, None)

    @asynccontextmanager
    async def using(self, subject: Subject) -> AsyncIterator[BatchedConnector | None]:
        """The version's connector for as long as the block lasts; None where it has none.

        503 where it is no longer in memory and its file is gone or damaged.
        """
        if subject.connector is None:
            yield None
            return
        try:
            kept = await self._get(subject, subject.connector)
        except ValueError as error:
            raise unavailable(f"{subject.name} cannot answer: {error}", retry_after_s=60) from error
        kept.users += 1
        try:
            yield kept.connector
        finally:
            kept.users -= 1
            self._make_room()

    async def _get(self, subject: Subject, digest: str) -> _Kept:
        if digest not in self._kept:
            async with self._reading:
                if digest not in self._kept:
                    self._kept[digest] = _Kept(await asyncio.to_thread(self._read, subject))
                    self._metrics.connector_read()
        self._kept.move_to_end(digest)
        self._make_room(newest=digest)
        return self._kept[digest]

    def _make_room(self, newest: str | None = None) -> None:
        """Gives up idle connectors until the rest fits. The ``newest`` stays, larger than the bound or not."""
        for digest in list(self._kept):
            if self.nbytes <= self._max_bytes:
                break
            if not self._kept[digest].users and digest != newest:
                del self._kept[digest]
                self._metrics.connector_evicted()

    def _read(self, subject: Subject) -> BatchedConnector:
        try:
            data = (subject.folder / CONNECTOR).read_bytes()
        except OSError as error:
            raise ValueError(f"file {CONNECTOR} cannot be read ({error.strerror})") from error
        if hashlib.sha256(data).hexdigest() != subject.connector:
            raise ValueError(f"file {CONNECTOR} is damaged: its SHA-256 is not the manifest's")
        try:
            connector = read_connector(load(data))
        except SafetensorError as error:
            raise ValueError(f"file {CONNECTOR} is not a readable safetensors file ({error})") from error
        self._check_shapes(connector)
        return batched(connector, self._frozen, self._vision.device)

    def _check_shapes(self, connector: Connector) -> None:
        """Raises ValueError unless the connector is between this vision tower and this language model."""
        adapter = connector.experts[0][0]
        for name, found, needed in (
            ("takes features", adapter.weight_1.shape[1], self._vision.sample.shape[-1]),
            ("gives soft tokens", adapter.weight_2.shape[0], self._vision.width),
        ):
            if found != needed:
                raise ValueError(f"{CONNECTOR} {name} of width {found} where the base has {needed}")

    @torch.inference_mode()
    def _try(self, connector: BatchedConnector) -> None:
        if not bool(torch.isfinite(connect([connector], self._vision.sample)).all()):
            raise ValueError(f"soft tokens of {CONNECTOR} are not finite")
