"""Classification over real data: the trainer's own answers, one encoder for all clients, and no name of another."""

import asyncio
import re
from typing import Any

import pytest
import torch

from adapters_store.personal.heads import Head, MixtureHead
from adapters_store.store import Store
from serve.http.auth import Keys
from tests.floats import CLIP_LOGITS, check_close, check_probabilities
from tests.serve.artefacts import Tensors, gated_tensors, memory_tensors, prompt_tensors, publish_head
from tests.serve.in_process import classify, probabilities, serving
from tests.train.small import config
from train.data import ClientData, build
from train.models.clip import MemoryClassifier, MixtureClassifier, PromptClassifier, ResidentClip

pytestmark = pytest.mark.numeric

CLIENTS = 10
Answers = dict[str, list[dict[str, Any]]]
METHODS = ("pfedmoap", "promptfl", "pfedmoap", "pfedprompt", "pfedmoap")  # given out in turn


class Served:
    """A federation's clients, each with a version in the store, and the head that the trainer evaluates it with."""

    def __init__(self, clip: ResidentClip, store: Store) -> None:
        self.store = store
        self.members = build(config("promptfl", data={"clients": CLIENTS, "test_per_client": 8}).data, 0)
        self.heads: dict[str, Head] = {}
        for seed, member in enumerate(self.members):
            method = METHODS[seed % len(METHODS)]
            tensors = tensors_of(method, seed, member, clip)
            publish_head(store, member.id, tensors, member.class_names, method=method)
            with torch.no_grad():
                self.heads[member.id] = trained_head(method, clip, member, tensors)


def tensors_of(method: str, seed: int, member: ClientData, clip: ResidentClip) -> Tensors:
    """What the method would publish for the client, made of random numbers; memories of its real training images."""
    if method == "pfedmoap":
        return gated_tensors(seed, others=1 + seed % 4)
    if method == "pfedprompt":
        return memory_tensors(seed, clip.features(member.train), torch.tensor([one.label for one in member.train]))
    return prompt_tensors(seed)


def trained_head(method: str, clip: ResidentClip, member: ClientData, tensors: Tensors) -> Head:
    """As in the trainer's evaluation."""
    if method == "pfedmoap":
        return MixtureClassifier(clip, member.class_names, tensors, float(tensors["mixing"])).head()
    if method == "pfedprompt":
        return MemoryClassifier(clip, member.class_names, tensors).head()
    return PromptClassifier(clip, member.class_names, tensors["prompt"]).head()


@pytest.fixture(scope="module")
def served(clip: ResidentClip, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Ten clients of three methods."""
    return Served(clip, Store(tmp_path_factory.mktemp("classify") / "store"))


@pytest.fixture(scope="module")
def answers(served: Served) -> Answers:
    """What the gateway says of every client's test images, all asked about at once."""

    async def ask() -> list[dict[str, Any]]:
        async with serving(served.store) as http:
            return await asyncio.gather(
                *(classify(http, member.id, one.image) for member in served.members for one in member.test)
            )

    said = iter(asyncio.run(ask()))
    return {member.id: [next(said) for _ in member.test] for member in served.members}


@torch.no_grad()
def test_answers_are_the_trainers_for_every_test_image(served: Served, clip: ResidentClip, answers: Answers) -> None:
    for member in served.members:
        logits = served.heads[member.id].logits(clip.features(member.test))
        for row, answer in zip(logits, answers[member.id], strict=True):
            expected = dict(zip(member.class_names, row.softmax(0).tolist(), strict=True))
            found = probabilities(answer)
            check_probabilities(found, expected)
            assert list(found.values()) == sorted(found.values(), reverse=True)


@torch.no_grad()
def test_a_gated_answer_says_how_each_expert_weighed(served: Served, clip: ResidentClip, answers: Answers) -> None:
    for member in served.members:
        head = served.heads[member.id]
        if not isinstance(head, MixtureHead):
            assert all("experts" not in answer for answer in answers[member.id])
            continue
        logits, attention = head.explained(clip.features(member.test))
        for row, weights, answer in zip(logits, attention, answers[member.id], strict=True):
            found = {expert["id"]: expert["weight"] for expert in answer["experts"]}
            check_close(list(found.values()), weights[int(row.argmax())], CLIP_LOGITS)
            check_close(sum(found.values()), 1, len(found) + 8)  # experts, and heads of the gate
            own, *others = found
            assert own == "own"
            assert all(re.fullmatch("p-[0-9a-f]{8}", other) for other in others)


def test_no_answer_names_another_client(answers: Answers) -> None:
    for client, said in answers.items():
        assert all(client in str(answer) for answer in said)
        assert not [other for other in answers.keys() - {client} if other in str(said)]


def test_clients_in_flight_together_share_one_batch(served: Served) -> None:
    async def ask() -> str:
        async with serving(served.store, max_batch=CLIENTS, max_wait_ms=5000) as http:
            await asyncio.gather(*(classify(http, member.id, member.test[0].image) for member in served.members))
            return (await http.get("/metrics")).text

    said = asyncio.run(ask())
    assert 'fedtailor_encoder_batch_size_count{encoder="clip"} 1.0' in said
    assert f'fedtailor_encoder_batch_size_sum{{encoder="clip"}} {CLIENTS}.0' in said


def test_64_requests_at_once_are_answered_as_each_is_alone(served: Served) -> None:
    asked = [(served.members[i % CLIENTS].id, served.members[i % CLIENTS].test[i // CLIENTS].image) for i in range(64)]

    async def ask() -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
        async with serving(served.store) as http:
            together = await asyncio.gather(*(classify(http, client, image) for client, image in asked))
            metrics = (await http.get("/metrics")).text
            http.headers["Authorization"] = f"Bearer {Keys(served.store.root).add([], admin=True)}"  # nothing cached
            return together, [await classify(http, client, image) for client, image in asked], metrics

    together, alone, metrics = asyncio.run(ask())
    for one, other in zip(together, alone, strict=True):
        assert one["fedtailor"] == other["fedtailor"]
        check_probabilities(probabilities(one), probabilities(other))
        weights = [[expert["weight"] for expert in answer.get("experts", ())] for answer in (one, other)]
        check_close(*weights, CLIP_LOGITS)
    encoded = re.search(r'batch_size_count\{encoder="clip"\} (\d+)', metrics)
    assert encoded is not None
    assert int(encoded[1]) < 64
