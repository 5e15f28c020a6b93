"""Names that come with the request: the base answers, as the trainer's zero-shot row does, and says so."""

import asyncio
from typing import Any

import httpx
import pytest
import torch

from adapters_store.personal.clip import Clip, load_clip
from adapters_store.store import Store
from serve.classify.zero_shot import TEXTS_AT_ONCE, ZeroShot
from serve.settings import Settings
from tests.floats import CLIP_TEXT, check_close, check_probabilities
from tests.serve.artefacts import CLIP, gated_tensors, publish_head
from tests.serve.in_process import classify, probabilities, serving
from tests.serve.live import data_url, noise, png
from train.data import Example
from train.models.clip import ResidentClip, ZeroShotClassifier

pytestmark = pytest.mark.numeric

NAMES = ["red circle", "night sketch", "café"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One client with a gate."""
    store = Store(tmp_path_factory.mktemp("zero") / "store")
    publish_head(store, "cat", gated_tensors(1))
    return store


@pytest.fixture(scope="module")
def base() -> Clip:
    """The embedded dual encoder."""
    return load_clip(CLIP)


@torch.no_grad()
def test_is_the_trainers_zero_shot_row(store: Store, clip: ResidentClip) -> None:
    async def ask() -> dict[str, Any]:
        async with serving(store) as http:
            return await classify(http, "cat", noise(1), classes=NAMES)

    answer = asyncio.run(ask())
    example = Example(noise(1), "", NAMES[0], "classify", 0, "one", "flat")
    row = ZeroShotClassifier(clip, NAMES).head().logits(clip.features([example]))[0].softmax(0)
    check_probabilities(probabilities(answer), dict(zip(NAMES, row.tolist(), strict=True)))
    assert answer["fedtailor"]["zero_shot"] is True
    assert answer["fedtailor"]["version"] == store.versions("cat")[0]
    assert "experts" not in answer


def test_names_come_by_form_too_and_by_another_template(store: Store) -> None:
    async def ask() -> list[dict[str, Any]]:
        async with serving(store, zero_shot_template="{class}") as http:
            by_json = await classify(http, "cat", noise(2), classes=NAMES)
            form = {"model": "cat", "top_k": "1000", "classes": NAMES}
            by_form = await http.post("/v1/classify", data=form, files={"image": ("x.png", png(noise(2)), "image/png")})
            whole = await classify(http, "cat", noise(2), classes=[f"a photo of a {name}." for name in NAMES])
            return [by_json, by_form.json(), whole]

    async def ask_default() -> dict[str, Any]:
        async with serving(store) as http:
            return await classify(http, "cat", noise(2), classes=NAMES)

    by_json, by_form, whole = asyncio.run(ask())
    assert by_json == by_form
    named = {f"a photo of a {name}.": p for name, p in probabilities(asyncio.run(ask_default())).items()}
    check_probabilities(probabilities(whole), named)


@pytest.mark.parametrize(
    ("classes", "reason"),
    [
        ([], "field 'classes': List should have at least 1 item"),
        ([f"n{i}" for i in range(1001)], "field 'classes': List should have at most 1000 items"),
        (["a", "b", "a"], "field 'classes': the name 'a' is there twice; names must differ"),
        (["a", ""], "field 'classes.1': String should have at least 1 character"),
        (["a", " \t"], "field 'classes.1': a class name of blanks alone is not allowed"),
        (["x" * 201], "field 'classes.0': String should have at most 200 characters"),
        (["a", 3], "field 'classes.1'"),
        ("cat", "field 'classes'"),
        (["fine", "cat " * 40], "field 'classes': the name 'cat cat cat cat cat cat cat cat cat cat …' is too long"),
    ],
)
def test_lists_at_fault(store: Store, classes: object, reason: str) -> None:
    async def ask() -> httpx.Response:
        async with serving(store) as http:
            body = {"model": "cat", "image": data_url(noise(0)), "classes": classes}
            return await http.post("/v1/classify", json=body)

    answer = asyncio.run(ask())
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]
    assert "\n" not in answer.json()["error"]["message"]


@torch.no_grad()
def test_long_lists_are_the_same_numbers(base: Clip) -> None:
    names = [f"thing {i}" for i in range(2 * TEXTS_AT_ONCE + 3)]

    async def ask() -> torch.Tensor:
        zero_shot = ZeroShot(base, Settings())
        head = await zero_shot.head(names, "ann")
        await zero_shot.close()
        return head.text

    expected = base.text_features([f"a photo of a {name}." for name in names])
    check_close(asyncio.run(ask()), expected, CLIP_TEXT)


def test_lists_are_remembered_per_owner_within_bounds(base: Clip) -> None:
    async def ask() -> None:
        zero_shot = ZeroShot(base, Settings())
        first = (await zero_shot.head(NAMES, "ann")).text
        assert (await zero_shot.head(list(NAMES), "ann")).text is first
        assert (await zero_shot.head(NAMES[::-1], "ann")).text is not first
        assert (await zero_shot.head(NAMES, "bob")).text is not first  # bob cannot tell by the time that ann asked
        await zero_shot.close()
        forgetful = ZeroShot(base, Settings(text_cache_mib=0))
        assert (await forgetful.head(NAMES, "ann")).text is not (await forgetful.head(NAMES, "ann")).text
        await forgetful.close()

    asyncio.run(ask())
