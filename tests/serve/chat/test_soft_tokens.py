"""Soft tokens: the numbers of training, per client, and never anything unsound to the engine."""

import asyncio
import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from adapters_store.personal.connector import CONNECTOR, read_connector
from adapters_store.personal.tensor_cache import TensorCache
from adapters_store.pictures.pixels import to_pixels
from adapters_store.store import Store
from serve.chat.soft_tokens import SoftTokens, engine_payload
from serve.chat.vision import Vision
from serve.errors import GatewayError
from serve.metrics import Metrics
from serve.pictures.images import decode_image
from serve.settings import Settings
from serve.versions.subjects import of_base
from tests.floats import SOFT_TOKENS, check_close
from tests.serve.artefacts import LLAVA, connector_tensors, publish_lora, subject_of
from tests.serve.live import noise, png
from train.models.mllm import load_llava

pytestmark = pytest.mark.numeric

SUBJECT = of_base(LLAVA, "0" * 16, LLAVA)


def test_equal_those_of_the_training_model() -> None:
    images = [noise(seed) for seed in range(3)]
    model = load_llava(LLAVA, load_in_4bit=True, dtype=torch.float32)
    pixels = torch.stack([to_pixels(image, SUBJECT.image_transform) for image in images])
    expected = torch.stack(list(model.get_image_features(pixel_values=pixels).pooler_output))

    async def ask() -> list[torch.Tensor]:
        soft = SoftTokens(LLAVA, Settings(), Metrics())
        pictures = [decode_image(png(image), SUBJECT.image_transform, Settings(), "image") for image in images]
        tokens = await asyncio.gather(*(soft("ann", picture, SUBJECT) for picture in pictures))
        assert tokens[0].shape == (model.config.image_seq_length, soft.width)
        await soft.close()
        return tokens

    check_close(torch.stack(asyncio.run(ask())), expected, SOFT_TOKENS)


def test_are_remembered_per_owner() -> None:
    encoded = []

    async def ask() -> None:
        soft = SoftTokens(LLAVA, Settings(), Metrics())
        encode = soft._batcher._compute
        soft._batcher._compute = lambda items: (encoded.append(len(items)), encode(items))[1]
        picture = decode_image(png(noise(0)), SUBJECT.image_transform, Settings(), "image")
        first = await soft("ann", picture, SUBJECT)
        assert await soft("ann", picture, SUBJECT) is first
        other = await soft("bob", picture, SUBJECT)
        assert other is not first
        assert torch.equal(other, first)
        await soft.close()

    asyncio.run(ask())
    assert encoded == [1, 1]  # bob cannot tell by the time it takes that ann asked about the picture


def test_a_connector_changes_what_is_made_of_features_that_are_encoded_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for seed in range(3):
        publish_lora(store, f"c{seed}", seed, connector=connector_tensors(seed, task=seed))
    subjects = [subject_of(store, name, store.versions(name)[0]) for name in store.clients()]
    pixels = to_pixels(noise(0), SUBJECT.image_transform)[None]
    features = Vision(LLAVA, torch.device("cpu")).features(pixels)
    expected = [read_connector(load_file(subject.folder / CONNECTOR))(features)[0] for subject in subjects]
    metrics = Metrics()

    async def ask() -> None:
        soft = SoftTokens(LLAVA, Settings(connector_mib=0, max_wait_ms=50), metrics)
        picture = decode_image(png(noise(0)), SUBJECT.image_transform, Settings(), "image")
        plain = await soft("ann", picture, SUBJECT)
        for _ in range(2):
            found = await asyncio.gather(*(soft("ann", picture, subject) for subject in (*subjects, SUBJECT)))
            for one, other in zip(found, [*expected, plain], strict=True):
                check_close(one, other, SOFT_TOKENS)
        await soft.close()

    asyncio.run(ask())
    told = metrics.render(True, 1, 0).decode()
    assert 'fedtailor_soft_token_seconds_count{part="features"} 1.0' in told
    assert 'fedtailor_soft_token_seconds_count{part="connectors"} 4.0' in told  # of them and the projector, once


def test_images_of_another_size_than_the_bases_are_refused() -> None:
    small = replace(SUBJECT, image_transform=SUBJECT.image_transform.model_copy(update={"size": 32}))

    async def load() -> None:
        soft = SoftTokens(LLAVA, Settings(), Metrics())
        await soft.load(SUBJECT)
        with pytest.raises(ValueError, match=r"image_transform\.size is 32 where the base takes 64"):
            await soft.load(small)
        await soft.close()

    asyncio.run(load())


def test_what_overflows_in_the_engines_numbers_is_never_sent() -> None:
    engine_payload(torch.full((5, 8), 1e5), width=8, max_tokens=5)
    with pytest.raises(GatewayError, match="not finite"):
        engine_payload(torch.full((5, 8), 1e5), width=8, max_tokens=5, dtype=torch.float16)


def test_what_is_sound_is_sent_as_it_is() -> None:
    tokens = torch.randn(5, 8)
    sent = np.load(io.BytesIO(base64.b64decode(engine_payload(tokens, width=8, max_tokens=5))), allow_pickle=False)
    assert np.array_equal(sent, tokens.numpy())


@pytest.mark.parametrize(
    "tokens",
    [
        torch.full((5, 8), float("nan")),
        torch.full((5, 8), float("inf")),
        torch.zeros(5, 7),
        torch.zeros(6, 8),
        torch.zeros(0, 8),
        torch.zeros(1, 5, 8),
        torch.zeros(8),
    ],
)
def test_what_would_spoil_answers_of_others_is_never_sent(tokens: torch.Tensor) -> None:
    with pytest.raises(GatewayError, match="soft tokens"):
        engine_payload(tokens, width=8, max_tokens=5)


def test_the_cache_is_bounded_by_memory() -> None:
    cache = TensorCache(max_bytes=100)
    for key in "abc":
        cache.put(key, torch.zeros(10))  # 40 bytes each
    assert [cache.get(key) is not None for key in "abc"] == [False, True, True]
    cache.put("large", torch.zeros(100))
    assert cache.get("large") is None
    assert cache.get("c") is not None
