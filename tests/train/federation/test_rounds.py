"""The loop: who takes part, whose update counts, what is committed."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.small import config, federation
from train.aggregation.averaging import shares, weighted_mean
from train.federation.backend import Reply
from train.federation.log import read_metrics
from train.federation.rounds import RoundError, participants, refusal
from train.methods import build_method
from train.methods.contract import ClientInfo, Method, Turn
from train.methods.local import Local
from train.methods.promptfl import PromptFL
from train.models.clip import ResidentClip
from train.models.interfaces import Outputs, Personal, ResidentModel
from train.tensors import Tensors, read

pytestmark = pytest.mark.numeric

CLIENTS = [ClientInfo(f"c{i}", 1) for i in range(10)]
EXPECTED = {"v": ((2,), torch.float32)}


class Misbehaving(PromptFL):
    """PromptFL with one client that misbehaves from its training on; the loop and the backend are the real ones."""

    culprit = "client-01"

    def build(self, model: ResidentClip, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        self.now = client.id
        return super().build(model, client, state, turn)

    def upload(self, state: Tensors, turn: Turn) -> Tensors:
        sent = super().upload(state, turn)
        return self.spoil(sent) if self.now == self.culprit else sent

    def spoil(self, sent: Tensors) -> Tensors:
        raise NotImplementedError


class SendsNaN(Misbehaving):
    def spoil(self, sent: Tensors) -> Tensors:
        return {name: torch.where(torch.arange(len(v))[:, None] == 1, torch.nan, v) for name, v in sent.items()}


class SendsMore(Misbehaving):
    def spoil(self, sent: Tensors) -> Tensors:
        return {**sent, "images": torch.zeros(3)}


class SendsNothing(Misbehaving):
    def spoil(self, sent: Tensors) -> Tensors:
        return {}


class IsSlow(Misbehaving):
    def loss(self, outputs: Outputs, turn: Turn) -> torch.Tensor:
        if self.now == self.culprit:
            time.sleep(0.6)
        return super().loss(outputs, turn)

    def spoil(self, sent: Tensors) -> Tensors:
        return sent


def run(model: ResidentModel, folder: Path, method: Method[Any] | None = None, **sections: Any) -> Any:
    loop, _ = federation(config("promptfl", evaluate={"references": []}, **sections), model, folder, method)
    return loop, loop.run()


def mean_of_others(model: ResidentModel, folder: Path) -> torch.Tensor:
    """What round 1 makes of client-00 and client-02, from their own trainings in a federation without a culprit."""
    loop, _ = federation(config("promptfl", federation={"rounds": 1}), model, folder / "honest")
    loop._round(1, None)
    up = folder / "honest" / "exchange" / "train-0001-0" / "up"
    sent = [read(up / f"{client}.safetensors") for client in ("client-00", "client-02")]
    return weighted_mean(sent, shares([loop.clients[0].examples, loop.clients[2].examples], "examples"))["prompt"]


def test_everybody_takes_part_unless_told_otherwise() -> None:
    assert participants(CLIENTS, None, 0, 1) == CLIENTS
    assert participants(CLIENTS, 99, 0, 1) == CLIENTS


def test_partial_participation_is_seeded_ordered_and_changes_by_round() -> None:
    rounds = [participants(CLIENTS, 3, 5, r) for r in range(1, 40)]
    assert rounds == [participants(CLIENTS, 3, 5, r) for r in range(1, 40)]
    assert all(len(drawn) == 3 and drawn == sorted(drawn, key=lambda c: c.id) for drawn in rounds)
    assert {c.id for drawn in rounds for c in drawn} == {c.id for c in CLIENTS}
    assert rounds != [participants(CLIENTS, 3, 6, r) for r in range(1, 40)]


@pytest.mark.parametrize(
    ("upload", "reason"),
    [
        ({}, "ann's update lacks v"),
        ({"v": torch.zeros(2), "w": torch.zeros(1)}, "ann's update has w, which this method does not expect"),
        ({"v": torch.zeros(3)}, "ann's update has v as 3 float32, expected 2 float32"),
        ({"v": torch.zeros(2).double()}, "ann's update has v as 2 float64, expected 2 float32"),
        ({"v": torch.tensor([1.0, float("inf")])}, "ann's update has values in v that are not finite"),
    ],
)
def test_an_update_that_cannot_be_combined_is_refused_in_a_sentence(upload: Tensors, reason: str) -> None:
    assert refusal(Reply("ann", upload, 0.0, 0.0, 0, 0, None), EXPECTED) == reason


def test_a_sound_update_is_not_refused() -> None:
    assert refusal(Reply("ann", {"v": torch.ones(2)}, 0.0, 0.0, 0, 0, None), EXPECTED) is None


@pytest.mark.parametrize(
    ("culprit", "reason"),
    [(SendsNaN, "not finite"), (SendsMore, "images, which this method"), (SendsNothing, "lacks prompt")],
)
def test_a_refused_client_is_named_and_left_out_of_the_round(
    clip: ResidentClip, tmp_path: Path, culprit: type[Misbehaving], reason: str
) -> None:
    """The round equals one that the client was never part of, and the client's own state stays what it was."""
    method = culprit(config("promptfl").method)  # type: ignore[arg-type]
    loop, _ = run(clip, tmp_path, method, federation={"rounds": 1})
    refused = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line["phase"] == "refused"]
    assert [line["client"] for line in refused] == ["client-01"]
    assert reason in refused[0]["reason"]
    latest = loop.checkpoints.latest()
    before = json.loads((latest.folder.parent / "0001" / "progress.json").read_text())
    assert before["taken_part"] == {"client-00": 1, "client-02": 1}
    assert not (latest.folder.parent / "0001" / "clients" / "client-01.safetensors").exists()
    assert torch.equal(
        read(latest.folder.parent / "0001" / "server.safetensors")["prompt"], mean_of_others(clip, tmp_path)
    )


def test_a_late_client_is_left_out(clip: ResidentClip, tmp_path: Path) -> None:
    method = IsSlow(config("promptfl").method)  # type: ignore[arg-type]
    limits = {"rounds": 1, "round_timeout": 0.5}
    loop, _ = federation(config("promptfl", federation=limits), clip, tmp_path, method)
    committed = loop._round(1, None)
    refused = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line["phase"] == "refused"]
    assert [line["reason"] for line in refused] == ["client-01 did not answer within federation.round_timeout = 0.5 s"]
    assert committed.progress["taken_part"] == {"client-00": 1, "client-02": 1}


def test_a_round_without_any_usable_update_stops_and_commits_nothing(clip: ResidentClip, tmp_path: Path) -> None:
    class AllNaN(PromptFL):
        def upload(self, state: Tensors, turn: Turn) -> Tensors:
            return {name: value * torch.nan for name, value in state.items()}

    method = AllNaN(config("promptfl").method)  # type: ignore[arg-type]
    loop, _ = federation(config("promptfl"), clip, tmp_path, method)
    with pytest.raises(RoundError, match="round 1: no client's update could be used"):
        loop.run()
    assert loop.checkpoints.latest() is None


def test_a_client_that_never_took_part_still_gets_its_personal_version(clip: ResidentClip, tmp_path: Path) -> None:
    loop, (endings, _) = run(clip, tmp_path, federation={"rounds": 1, "clients_per_round": 1})
    assert len(loop.checkpoints.latest().progress["taken_part"]) == 1
    assert len(endings) == 3
    assert len({ending.artefact.files["prompt.safetensors"] for ending in endings.values()}) == 3


def test_without_personal_steps_the_personal_version_is_what_was_received(clip: ResidentClip, tmp_path: Path) -> None:
    client = {"personal_steps": 0}
    _, (endings, shared) = run(clip, tmp_path, client=client)
    assert all(ending.artefact.files == shared.files for ending in endings.values())


def test_local_sends_nothing_and_takes_as_many_steps(clip: ResidentClip, tmp_path: Path) -> None:
    options = config("promptfl").method
    _, (_, shared) = run(clip, tmp_path / "local", Local(build_method(options)))
    run(clip, tmp_path / "federated")
    assert shared is None
    lines = {name: read_metrics(tmp_path / name / "metrics.jsonl") for name in ("local", "federated")}
    turns = {name: [(x["client"], x["round"]) for x in of if x["phase"] != "aggregate"] for name, of in lines.items()}
    assert turns["local"] == turns["federated"]
    assert all(x["bytes_up"] == 0 for x in lines["local"] if "bytes_up" in x)
    assert all(x["bytes_up"] > 0 for x in lines["federated"] if x["phase"] == "train")
    # the first round starts from the same place on the same batches: the same losses
    first = {name: [x["loss"] for x in of if x["round"] == 1 and x["phase"] == "train"] for name, of in lines.items()}
    assert first["local"] == first["federated"]


def test_two_exchanges_a_round_pass_the_staged_state_on(clip: ResidentClip, tmp_path: Path) -> None:
    """What Pilot needs: a client's first round has two exchanges, and the second starts from what the first left."""
    seen: list[tuple[int, int, float]] = []

    class Twice(PromptFL):
        def exchanges(self, client: ClientInfo, round: int, first: bool) -> int:
            return 2 if first else 1

        def enrol(self, model: ResidentClip, client: ClientInfo, seed: int) -> Tensors:
            return {"private": torch.zeros(1)}

        def build(self, model: ResidentClip, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
            if turn is not None and turn.kind == "train" and client.id == "client-00":
                seen.append((turn.round, turn.exchange, state["private"].item()))
            return super().build(model, client, state, turn)

        def absorb(self, state: Tensors, parcel: Tensors, turn: Turn) -> Tensors:
            return {**state, **parcel, "private": state["private"] + 1}

        def upload(self, state: Tensors, turn: Turn) -> Tensors:
            return {"prompt": state["prompt"]}

        def publish(self, model: ResidentClip, client: ClientInfo, state: Tensors) -> Any:
            return super().publish(model, client, {"prompt": state["prompt"]})

    method = Twice(config("promptfl").method)  # type: ignore[arg-type]
    run(clip, tmp_path, method)
    assert seen == [(1, 0, 1.0), (1, 1, 2.0), (2, 0, 3.0)]


def test_a_parcel_may_differ_for_every_client(clip: ResidentClip, tmp_path: Path) -> None:
    """What pFedMoAP needs: the schema is taken per client, the parcel too."""
    sent: dict[str, Sequence[str]] = {}

    class Addressed(PromptFL):
        def parcel(self, state: Tensors, client: ClientInfo) -> Tensors:
            return {**state, f"for/{client.id}": torch.ones(1)}

        def absorb(self, state: Tensors, parcel: Tensors, turn: Turn) -> Tensors:
            return dict(parcel)

        def build(self, model: ResidentClip, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
            if turn is not None:
                sent[client.id] = sorted(state)
            return super().build(model, client, state, turn)

        def upload(self, state: Tensors, turn: Turn) -> Tensors:
            return {"prompt": state["prompt"]}

        def expected(self, state: Tensors, client: ClientInfo, turn: Turn) -> Any:
            return {"prompt": (tuple(state["prompt"].shape), torch.float32)}

        def publish(self, model: ResidentClip, client: ClientInfo, state: Tensors) -> Any:
            return super().publish(model, client, {"prompt": state["prompt"]})

    run(clip, tmp_path, Addressed(config("promptfl").method))  # type: ignore[arg-type]
    assert sent == {f"client-0{i}": [f"for/client-0{i}", "prompt"] for i in range(3)}
