"""One client's side: a turn of local training on the resident base, and what it publishes at the end."""

import math
import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, Literal

import torch

from train.data import ClientData
from train.federation.evaluate import Scores, evaluate, unseen_row
from train.federation.optimise import batches, learning_rate, optimiser, step_count
from train.methods.contract import ClientInfo, Method, Turn
from train.models.interfaces import Artefact, Personal, ResidentModel
from train.models.resident import zero_shot
from train.privacy.dp_sgd import Mechanism, poisson_samples, set_example_gradients_
from train.sections import ClientConfig
from train.tensors import Tensors, generator


class Late(Exception):
    """The client's time for this exchange is over."""


@dataclass(frozen=True)
class Trained:
    """After a turn: the client's own state, what it uploads, its mean loss over the steps, and the seconds it took."""

    state: Tensors
    upload: Tensors
    loss: float
    seconds: float


@dataclass(frozen=True)
class Finished:
    """What a client publishes, and its scores by row of the results: on its test split, on what is unseen."""

    artefact: Artefact
    scores: dict[str, Scores]


@dataclass(frozen=True)
class Site:
    """What a process needs to act for its clients: the resident base, the method, and the clients' data."""

    model: ResidentModel
    method: Method[Any]
    clients: Mapping[str, ClientData]
    infos: Mapping[str, ClientInfo]
    config: ClientConfig
    seed: int
    split: Literal["test", "val"] = "test"
    mechanism: Mechanism | None = None  # what makes the training turns differentially private

    def train(self, client: str, turn: Turn, parcel: Tensors, state: Tensors | None, timeout: float) -> Trained:
        """A turn from the parcel and the client's own state (None: it never took part). Late after ``timeout`` s."""
        deadline = time.monotonic() + timeout
        info, method = self.infos[client], self.method
        own = method.enrol(self.model, info, self.seed) if state is None else state
        own = method.absorb(own, parcel, turn)
        personal = method.build(self.model, info, own, turn)
        started = time.monotonic()
        losses = self._optimise(client, turn, personal, deadline)
        own = {**own, **{name: p.detach().cpu().clone() for name, p in personal.parameters.items()}}
        if turn.kind == "personal":
            own = method.settle(self.model, own, self.clients[client])
        upload = method.upload(own, turn) if turn.kind == "train" else {}
        loss = sum(losses) / len(losses) if losses else math.nan
        return Trained(own, upload, loss, time.monotonic() - started)

    def finish(self, client: str, state: Tensors, shared: Artefact | None, references: tuple[str, ...]) -> Finished:
        """The personal artefact of this state, and the scores of exactly its bytes beside the references'."""
        info, method = self.infos[client], self.method
        artefact = method.publish(self.model, info, state)
        scores = self._scores(client, "personal", self._built(info, artefact))
        if shared is not None:
            scores |= self._scores(client, "global", self._built(info, shared))
        if "zero_shot" in references:
            scores |= self._scores(client, "zero_shot", zero_shot(self.model, info.class_names))
        return Finished(artefact, scores)

    def _scores(self, client: str, row: str, personal: Personal) -> dict[str, Scores]:
        """One row of the results, and the same row of every unseen set."""
        data = self.clients[client]
        held_out = data.test if self.split == "test" else data.val
        unseen = {unseen_row(kind, row): evaluate(personal, examples) for kind, examples in data.unseen.items()}
        return {row: evaluate(personal, held_out), **unseen}

    def _built(self, info: ClientInfo, artefact: Artefact) -> Personal:
        return self.method.build(self.model, info, self.method.restore(artefact.files), None)

    def _optimise(self, client: str, turn: Turn, personal: Personal, deadline: float) -> list[float]:
        """The turn's steps, and the loss of each; no losses where the turn is private: they are not noised."""
        examples = self.clients[client].train
        steps = step_count(self.config, len(examples), turn)
        if steps == 0:
            return []
        random = generator(self.seed, "augment", *astuple(turn), client)
        prepared = personal.prepare(examples, random if self.config.augment != "none" else None)
        private = self.mechanism if turn.kind == "train" else None  # what the personal turn makes is not uploaded
        source, draw = (self.seed, batches) if private is None else (private.key, poisson_samples)
        moves = optimiser(self.config, personal.parameters)
        if private is not None:
            moves = private.optimiser(moves, min(self.config.batch_size, len(examples)), turn, client)
        losses = []
        for step, rows in enumerate(draw(self.config, len(examples), steps, source, turn, client)):
            if time.monotonic() > deadline:
                raise Late
            moving = set(self.method.trainable(list(personal.parameters), turn, step, steps))
            for name, parameter in personal.parameters.items():
                parameter.requires_grad_(name in moving)
            moves.zero_grad(set_to_none=True)  # a parameter without a gradient is not moved
            if private is None:
                losses.append(self._descend(personal, prepared, rows, turn))
            else:
                set_example_gradients_(personal, prepared, rows, self.method, turn)
            scheduled = learning_rate(self.config, turn, step, steps)
            for name, group in zip(personal.parameters, moves.param_groups, strict=True):
                group["lr"] = self.method.rate(name, scheduled)
            moves.step()
        return losses

    def _descend(self, personal: Personal, prepared: Any, rows: list[int], turn: Turn) -> float:
        """The loss over these rows; its gradients are left on the parameters."""
        loss = self.method.loss(personal.outputs(prepared, rows), turn)
        loss.backward()
        if self.config.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(personal.parameters.values(), self.config.clip_norm)
        return loss.item()
