"""The one loop: choose clients, send parcels, screen and combine what comes back, commit the round.

It knows neither methods nor engines by name: a method (train/methods/contract.py) says what is sent, checked and
combined, a backend (backend.py beside it) carries it. Round numbers start at 1; the personal turn is committed as the
one after the last.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from train.federation.backend import Backend, Ending, Reply
from train.federation.checkpoint import Checkpoint, Checkpoints
from train.federation.log import RunLog
from train.methods.contract import ClientInfo, Method, ServerContext, Turn, Update
from train.models.interfaces import Artefact, ResidentModel
from train.sections import FederationConfig
from train.tensors import Tensors, derive_seed, schema_of


class RoundError(Exception):
    """A round in which no usable update was left."""


@dataclass(frozen=True)
class Federation:
    """One federation: who, by which method, over which engine, committed where, logged where."""

    method: Method[Any]
    model: ResidentModel
    clients: Sequence[ClientInfo]
    config: FederationConfig
    seed: int
    backend: Backend
    checkpoints: Checkpoints
    log: RunLog

    def run(self) -> tuple[dict[str, Ending], Artefact | None]:
        """Plays the rounds not committed yet; then every client's artefact and scores, and the global artefact."""
        committed = self.checkpoints.latest()
        self.log.rewind(committed.progress["logged"] if committed else 0)
        for number in range(committed.round + 1 if committed else 1, self.config.rounds + 2):
            play = self._round if number <= self.config.rounds else self._personal
            committed = play(number, committed)
        assert committed is not None
        shared = self.method.publish_global(self.model, self.clients, committed.server)
        with self.log.phase("evaluate", len(self.clients)):
            endings = self.backend.finish([client.id for client in self.clients], committed, shared)
        return endings, shared

    def _round(self, number: int, committed: Checkpoint | None) -> Checkpoint:
        state = committed.server if committed else self.method.initial(self.model, self.clients, self.seed)
        taken_part = dict(committed.progress["taken_part"]) if committed else {}
        clients = participants(self.clients, self.config.clients_per_round, self.seed, number)
        spells = {c.id: self.method.exchanges(c, number, c.id not in taken_part) for c in clients}
        staged = {client.id: Path() for client in clients}
        for exchange in range(max(spells.values())):
            turn = Turn("train", number, exchange)
            active = [client for client in clients if spells[client.id] > exchange and client.id in staged]
            replies = self._exchange(turn, active, state, committed)
            accepted = self._screen(turn, state, active, replies)
            for client in active:
                del staged[client.id]  # whoever is refused stays out for the rest of the round, its old state stands
            staged.update((reply.client, reply.staged) for reply in accepted if reply.staged is not None)
            state = self._combine(turn, state, accepted, spells)
        taken_part.update((client, taken_part.get(client, 0) + 1) for client in staged)
        progress = {"taken_part": taken_part, "logged": self.log.size}
        return self.checkpoints.commit(number, state, progress, staged)

    def _personal(self, number: int, committed: Checkpoint | None) -> Checkpoint:
        """Every client's last, private turn, from what it would be sent next."""
        assert committed is not None
        state = committed.server
        replies = self._exchange(Turn("personal", number), self.clients, state, committed)
        late = [reply.refusal for reply in replies if reply.refusal is not None]
        if late:
            raise RoundError(f"personal turn: {late[0]}; raise it and resume")
        staged = {reply.client: reply.staged for reply in replies if reply.staged is not None}
        progress = {**committed.progress, "logged": self.log.size}
        return self.checkpoints.commit(number, state, progress, staged)

    def _exchange(
        self, turn: Turn, clients: Sequence[ClientInfo], state: Tensors, committed: Checkpoint | None
    ) -> list[Reply]:
        parcels = {client.id: self.method.parcel(state, client) for client in clients}
        with self.log.phase(f"round {turn.round}" if turn.kind == "train" else "personal", len(clients)):
            replies = self.backend.exchange(turn, parcels, committed)
        for reply in replies:
            self.log.reply(turn, reply)
        return replies

    def _screen(
        self, turn: Turn, state: Tensors, clients: Sequence[ClientInfo], replies: Sequence[Reply]
    ) -> list[Reply]:
        """The replies that may be combined; the others are named in the log and left out of the round."""
        accepted = []
        for client, reply in zip(clients, replies, strict=True):
            reason = reply.refusal or refusal(reply, self.method.expected(state, client, turn))
            if reason is None:
                accepted.append(reply)
            else:
                self.log.refused(turn, reply.client, reason)
        if not accepted:
            raise RoundError(f"round {turn.round}: no client's update could be used; the log names the reasons")
        return accepted

    def _combine(self, turn: Turn, state: Tensors, replies: Sequence[Reply], exchanges: Mapping[str, int]) -> Tensors:
        examples = {client.id: client.examples for client in self.clients}
        updates = [Update(reply.client, examples[reply.client], reply.upload) for reply in replies]
        context = ServerContext(self.model, self.clients, self.seed, turn.round, turn.exchange, exchanges)
        combined = self.method.combine(state, updates, context)
        self.log.combined(turn, self.method.diagnose(combined, updates))
        return combined


def participants(clients: Sequence[ClientInfo], count: int | None, seed: int, round: int) -> list[ClientInfo]:
    """The clients of this round, drawn without replacement, in client order; all of them where ``count`` is None."""
    if count is None or count >= len(clients):
        return list(clients)
    chosen = random.Random(derive_seed(seed, "participants", round)).sample(range(len(clients)), count)
    return [clients[i] for i in sorted(chosen)]


def refusal(reply: Reply, expected: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> str | None:
    """Why this update cannot be combined, in a sentence; None where it can."""
    found = schema_of(reply.upload)
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return f"{reply.client}'s update lacks {name}"
        if name not in expected:
            return f"{reply.client}'s update has {name}, which this method does not expect"
        if found[name] != expected[name]:
            return f"{reply.client}'s update has {name} as {_spell(found[name])}, expected {_spell(expected[name])}"
        if not torch.isfinite(reply.upload[name]).all():
            return f"{reply.client}'s update has values in {name} that are not finite"
    return None


def _spell(entry: tuple[tuple[int, ...], torch.dtype]) -> str:
    shape, dtype = entry
    return f"{'×'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
