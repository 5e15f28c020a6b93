"""Versions with a vision tower of their own answer as the trainer evaluates them, in batches with all others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters_store.store import Store
from tests.floats import check_probabilities
from tests.serve.artefacts import prompt_manifest, publish_prompt
from tests.serve.in_process import classify, probabilities, serving
from tests.serve.live import noise
from tests.train.small import config
from train.data import ClientData, Example, build
from train.models.clip import ResidentClip, ZeroShotClassifier
from train.models.vision_lora import (
    VisionLoraOptions,
    VisionLoraPersonal,
    initial_vision_lora,
    vision_lora_artefact,
)
from train.tensors import Tensors

pytestmark = pytest.mark.numeric

SCALE = 2.0
CLIENTS = ("ann", "bob", "global")  # with a tower each; "cat" has a prompt


def random_lora(clip: ResidentClip, seed: int, rank: int = 4) -> Tensors:
    """Far from what the base says."""
    random = torch.Generator().manual_seed(seed)
    options = VisionLoraOptions(rank=rank, targets=("in_proj", "out_proj", "c_fc", "c_proj"))
    start = initial_vision_lora(clip, options, seed)
    return {name: tensor + 0.05 * torch.randn(tensor.shape, generator=random) for name, tensor in start.items()}


def publish_vision_lora(
    store: Store, client: str, clip: ResidentClip, tensors: Tensors, class_names: tuple[str, ...], **changed: Any
) -> str:
    """``changed`` replaces fields of the manifest."""
    artefact = vision_lora_artefact("personal", clip, class_names, tensors, SCALE)
    said = {"method": "sap", "rank": artefact.rank, "target_modules": artefact.target_modules}
    said |= {"prompt_template": artefact.prompt_template} | changed
    return store.publish(prompt_manifest(client, class_names, **said), artefact.files, {}, activate=True)


class Served:
    """A store with three towers and a prompt, and the trainer's own model of every tower."""

    def __init__(self, clip: ResidentClip, store: Store) -> None:
        self.store = store
        members = build(config("promptfl").data, 0)
        self.members: dict[str, ClientData] = dict(zip((*CLIENTS[:2], "cat"), members, strict=True))
        self.members["global"] = members[2]
        self.personal: dict[str, VisionLoraPersonal] = {}
        for seed, client in enumerate(CLIENTS):
            tensors, names = random_lora(clip, seed), self.members[client].class_names
            publish_vision_lora(store, client, clip, tensors, names)
            self.personal[client] = VisionLoraPersonal(clip, SCALE, names, tensors)
        publish_prompt(store, "cat", seed=7)

    def asked(self) -> list[tuple[str, Example]]:
        """A few test images of every client, the clients by turns."""
        return [(client, self.members[client].test[i]) for i in range(4) for client in (*CLIENTS, "cat")]


@pytest.fixture(scope="module")
def served(clip: ResidentClip, tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(clip, Store(tmp_path_factory.mktemp("vision") / "store"))


def test_together_and_alone_they_answer_as_the_trainer_evaluates(served: Served) -> None:
    asked = served.asked()

    async def ask() -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
        async with serving(served.store, max_batch=len(asked), max_wait_ms=5000) as http:
            together = await asyncio.gather(*(classify(http, client, one.image) for client, one in asked))
            metrics = (await http.get("/metrics")).text
        async with serving(served.store) as http:
            return together, [await classify(http, client, one.image) for client, one in asked], metrics

    together, alone, metrics = asyncio.run(ask())
    assert 'fedtailor_encoder_batch_size_count{encoder="clip"} 1.0' in metrics
    for (client, one), mixed, single in zip(asked, together, alone, strict=True):
        assert mixed["fedtailor"] == single["fedtailor"]
        check_probabilities(probabilities(mixed), probabilities(single))
        if client != "cat":
            personal = served.personal[client]
            expected = personal.logits([one])[0].softmax(0).tolist()
            check_probabilities(probabilities(mixed), dict(zip(personal.class_names, expected, strict=True)))
            assert personal.answer([one]) == [personal.class_names[expected.index(max(expected))]]


def test_one_picture_is_another_answer_in_every_version(served: Served) -> None:
    """A feature is remembered for the version whose tower made it."""
    image = served.members["ann"].test[0].image

    async def ask() -> list[dict[str, float]]:
        async with serving(served.store) as http:
            return [probabilities(await classify(http, client, image)) for client in (*CLIENTS, *CLIENTS)]

    said = asyncio.run(ask())
    assert said[:3] == said[3:]
    assert said[0] != pytest.approx(said[1], abs=1e-3)


@torch.no_grad()
def test_classes_of_the_request_are_named_by_the_versions_own_tower(served: Served, clip: ResidentClip) -> None:
    names, one = ("red circle", "night sketch", "café"), Example(noise(1), "", "", "classify", 0, "one", "flat")

    async def ask() -> list[dict[str, float]]:
        async with serving(served.store) as http:
            return [probabilities(await classify(http, c, noise(1), classes=list(names))) for c in ("ann", "cat")]

    tower, base = asyncio.run(ask())
    tensors = {name: parameter.detach() for name, parameter in served.personal["ann"].parameters.items()}
    expected = VisionLoraPersonal(clip, SCALE, names, tensors).logits([one])[0].softmax(0).tolist()
    check_probabilities(tower, dict(zip(names, expected, strict=True)))
    plain = ZeroShotClassifier(clip, names).head().logits(clip.features([one]))[0].softmax(0).tolist()
    check_probabilities(base, dict(zip(names, plain, strict=True)))


def renamed(tensors: Tensors, old: str, new: str) -> Tensors:
    return {name.replace(old, new): tensor for name, tensor in tensors.items()}


def widened(tensors: Tensors) -> Tensors:
    return {n: torch.cat([t, t], dim=1) if n.endswith("lora_A.weight") else t for n, t in tensors.items()}


def huge(tensors: Tensors) -> Tensors:
    return {name: 1e30 * torch.ones_like(tensor) for name, tensor in tensors.items()}


def test_an_unfit_version_is_refused_and_the_one_before_goes_on(clip: ResidentClip, tmp_path: Path) -> None:
    store, names, sound = Store(tmp_path / "store"), ("circle", "star"), random_lora(clip, 0)
    transform = {"size": 32, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    first = publish_vision_lora(store, "ann", clip, sound, names)
    bad = {
        publish_vision_lora(store, "ann", clip, tensors, classes, **changed): reason
        for tensors, classes, changed, reason in (
            (renamed(sound, "resblocks.4.", "resblocks.5."), names, {}, "which the base's vision tower does not have"),
            (widened(sound), names, {}, "in_proj_weight as of shape [576, 384] where the base has [576, 192]"),
            (huge(sound), names, {}, "its image features are not finite"),
            (sound, names, {"prompt_template": "a photo."}, "prompt_template 'a photo.' has no {class}"),
            (sound, names, {"image_transform": transform}, "image_transform.size is 32 where the base takes 64"),
            (sound, ("a", "cat " * 40), {}, "the name 'cat cat cat cat cat cat cat cat cat cat …' is too long"),
        )
    }

    async def follow() -> None:
        async with serving(store, watch_interval_s=1000) as http:
            for version, reason in bad.items():
                store.activate("ann", first)
                await http.post("/v1/admin/reload")
                store.activate("ann", version)
                refused = (await http.post("/v1/admin/reload")).json()["refused"]
                assert refused[f"ann@{version}"].startswith(f"ann@{version} is refused: ")
                assert reason in refused[f"ann@{version}"]
                assert "\n" not in refused[f"ann@{version}"]
                assert (await classify(http, "ann", noise(0)))["fedtailor"]["version"] == first
            good = publish_vision_lora(store, "ann", clip, random_lora(clip, 1, rank=2), names)
            await http.post("/v1/admin/reload")
            assert (await classify(http, "ann", noise(0)))["fedtailor"]["version"] == good

    asyncio.run(follow())
