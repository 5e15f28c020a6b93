"""The paths that the benchmark compares: they compute the same, and are what they are called."""

from pathlib import Path
from typing import Any

import pytest
import torch

from adapters_store.personal.gate import Gate, gate_width
from adapters_store.personal.heads import MixtureHead
from bench.prompt_study.loop import WatchedPFedMoAP, rounds
from bench.prompt_study.reference import ReferenceHead, ReferencePFedMoAP, RepeatedGate, WholeText
from bench.prompt_study.speed import loss_difference, measure_rounds, text_path
from tests.floats import BACK, CLIP_TEXT, check_close
from tests.train.small import config
from train.data import ClientData, build
from train.models.clip import ResidentClip
from train.run.config import RunConfig

pytestmark = pytest.mark.numeric


def small(**method: Any) -> tuple[RunConfig, list[ClientData]]:
    found = config("pfedmoap", method={"experts": 2, **method})
    return found, build(found.data, found.seed)


def test_all_paths_have_the_same_losses_and_steps(clip: ResidentClip) -> None:
    found, clients = small()
    measured = measure_rounds(found, clip, clients, [1], {"fast": 2, "plain": 1, "reference": 1}, lambda part: None)
    one = measured["threads"]["1"]
    assert one["loss_difference"] < 1e-4
    assert one["steps"] == 2 * sum(-(-len(client.train) // 8) for client in clients)  # two epochs, batches of eight
    assert len(one["every_round_seconds"]["fast"]) == 2
    assert one["round_ratio"]["fast"] == 1.0


def test_the_reference_plays_the_same_federation(clip: ResidentClip, tmp_path: Path) -> None:
    found, clients = small()
    ends = []
    for method in (WatchedPFedMoAP(found.method), ReferencePFedMoAP(found.method)):
        loop = rounds(found, method, clip, clients, tmp_path / type(method).__name__)
        loop.play(3)
        committed = loop.checkpoints.latest()
        assert committed is not None
        ends.append(committed.server)
    steps = 3 * 2 * max(-(-len(client.train) // 8) for client in clients)  # rounds, epochs, batches
    for name, ours in ends[0].items():
        check_close(ours, ends[1][name], steps * BACK * CLIP_TEXT)


def test_other_numbers_are_told_apart(clip: ResidentClip, tmp_path: Path) -> None:
    losses = []
    for mixing in (0.5, 0.6):
        found, clients = small(mixing=mixing)
        method = ReferencePFedMoAP(found.method)
        rounds(found, method, clip, clients, tmp_path / str(mixing)).play(2)
        losses.append(method.losses)
    assert loss_difference(*losses) > 1e-4


def test_the_plain_path_shares_nothing_and_is_left_again(clip: ResidentClip) -> None:
    found, clients = small()
    texts = clip.texts(clients[0].class_names, 4)
    prompts = torch.randn(1, 4, 128)
    with text_path(clip, found, clients, "plain"):
        assert not texts.shares_prefix
        plain = [clip.frozen_text(prompts, clients[0].class_names) for _ in range(2)]
        assert plain[0].data_ptr() != plain[1].data_ptr()
        assert clip.text_cache.get((prompts[0].numpy().tobytes(), clients[0].class_names)) is None
    assert texts.shares_prefix
    check_close(plain[0], clip.frozen_text(prompts, clients[0].class_names), CLIP_TEXT)


def test_the_reference_encodes_every_position(clip: ResidentClip) -> None:
    whole = WholeText(clip.clip, ("star", "red ring"), 4)
    assert whole.start.shape[1] + 4 + whole.suffix.shape[1] == clip.texts(("star",), 4).tower.context
    prompt, texts = torch.randn(4, 128), clip.texts(("star", "red ring"), 4)
    check_close(whole(prompt), texts.features(prompt), CLIP_TEXT)


@pytest.mark.parametrize("joint", [1024, 512, 128])
def test_the_repeated_gate_is_the_gate(joint: int) -> None:
    torch.manual_seed(joint)
    gate, repeated = Gate(joint), RepeatedGate(gate_width(joint))
    repeated.load_state_dict(gate.state_dict())
    images, text, others = (torch.nn.functional.normalize(torch.randn(*n, joint), dim=-1) for n in ((5,), (3,), (4, 3)))
    stride = joint // gate.width
    ours = MixtureHead(torch.tensor(20.0), text, others, gate, 0.5)
    theirs = ReferenceHead(torch.tensor(20.0), text, [one[:, ::stride] for one in others], repeated, 0.5, stride)
    check_close(ours.logits(images), theirs.logits(images), joint + 3 * 128)
