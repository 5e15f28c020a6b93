"""A head that does not fit the base is refused in one sentence, and the version before it goes on answering."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from adapters_store.personal.gate import initial_gate
from adapters_store.store import Store
from serve.classify.head_fit import check_head
from tests.serve.artefacts import (
    CLASSES,
    FEATURES,
    WIDTH,
    Tensors,
    gated_tensors,
    memory_tensors,
    prompt_tensors,
    publish_head,
)
from tests.serve.in_process import classify, serving
from tests.serve.live import noise

Change = Callable[[Tensors], Tensors]


def memory(seed: int = 0) -> Tensors:
    """A memory of four examples."""
    return memory_tensors(seed, torch.randn(4, FEATURES), torch.tensor([0, 1, 2, 1]))


@pytest.mark.parametrize("tensors", [prompt_tensors(0), gated_tensors(0), gated_tensors(0, others=1), memory()])
def test_what_methods_publish_fits(tensors: Tensors) -> None:
    check_head(tensors, WIDTH, FEATURES, len(CLASSES))


@pytest.mark.parametrize("missing", ["prompt", "mixing", "gate.query.weight", "gate.output.bias"])
def test_a_gated_head_is_whole(missing: str) -> None:
    tensors = {name: tensor for name, tensor in gated_tensors(0).items() if name != missing}
    with pytest.raises(ValueError, match=f"^tensor {missing} of prompt.safetensors is missing$"):
        check_head(tensors, WIDTH, FEATURES, len(CLASSES))


def narrow_gate(tensors: Tensors) -> Tensors:
    """The gate of a base whose features are half as wide."""
    gate = initial_gate(FEATURES // 2, torch.Generator().manual_seed(0))
    return {**tensors, **{f"gate.{name}": tensor for name, tensor in gate.items()}}


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"prompt": torch.zeros(4, WIDTH + 8)}, rf"tensor prompt has shape \[4, {WIDTH + 8}\] where the base needs"),
        ({"prompt": torch.zeros(())}, r"tensor prompt has shape \[\]"),
        ({"prompt": torch.zeros(4, WIDTH, dtype=torch.int64)}, "tensor prompt is torch.int64"),
        (prompt_tensors(0) | {"gates": torch.zeros(1)}, "tensor gates of prompt.safetensors belongs to no classifier"),
        (gated_tensors(0) | memory(), "tensor memory.features of prompt.safetensors belongs to no classifier"),
        (gated_tensors(0, others=0), "tensor others has shape"),
        (gated_tensors(0) | {"others": torch.zeros(2, 3, WIDTH)}, "tensor others has shape"),
        (gated_tensors(0) | {"mixing": torch.zeros(2)}, r"tensor mixing has shape \[2\] where the base needs \[\]"),
        (narrow_gate(gated_tensors(0)), r"tensor gate.key.bias has shape \[16\] where the base needs \[128\]"),
        (memory() | {"memory.features": torch.zeros(4, FEATURES - 1)}, "tensor memory.features has shape"),
        (memory() | {"memory.labels": torch.tensor([0, 1])}, "tensor memory.labels has shape"),
        (memory() | {"memory.labels": torch.tensor([0, 1, 2, 3])}, "none of the 3 classes, 0 to 2"),
        (memory() | {"memory.labels": torch.tensor([0, 1, -1, 1])}, "none of the 3 classes, 0 to 2"),
        (memory() | {"memory.labels": torch.zeros(4)}, "tensor memory.labels is torch.float32"),
        (memory() | {"memory.weights": torch.zeros(3)}, "tensor memory.weights has shape"),
    ],
)
def test_what_does_not_fit_is_one_sentence(tensors: Tensors, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        check_head(tensors, WIDTH, FEATURES, len(CLASSES))
    assert "\n" not in str(refused.value)


def test_a_base_too_narrow_for_a_gate_is_said() -> None:
    with pytest.raises(ValueError, match="a multiple of its 8 heads is needed"):
        check_head(gated_tensors(0), WIDTH, 36, len(CLASSES))


def without_mixing(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name != "mixing"}


def overflowing(tensors: Tensors) -> Tensors:
    return {**tensors, "mixing": torch.tensor(3e38)}


def test_the_old_version_goes_on_answering(tmp_path: Path) -> None:
    """Refused at the gateway, one after the other; a good one is taken in the end."""
    store = Store(tmp_path / "store")
    first = publish_head(store, "cat", gated_tensors(0))
    transform = {"size": 32, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    bad = {
        publish_head(store, "cat", without_mixing(gated_tensors(1))): "tensor mixing of prompt.safetensors is missing",
        publish_head(store, "cat", overflowing(gated_tensors(2))): "its class scores are not finite",
        publish_head(store, "cat", narrow_gate(gated_tensors(3))): "tensor gate.key.bias has shape",
        publish_head(store, "cat", gated_tensors(4), image_transform=transform): "is 32 where the base takes 64",
        publish_head(store, "cat", gated_tensors(5), ["a " * 40 + name for name in CLASSES]): "do not fit the text",
    }

    async def follow() -> None:
        async with serving(store, watch_interval_s=1000) as http:
            for version, reason in bad.items():
                store.activate("cat", first)
                await http.post("/v1/admin/reload")
                store.activate("cat", version)
                refused = (await http.post("/v1/admin/reload")).json()["refused"]
                assert refused[f"cat@{version}"].startswith(f"cat@{version} is refused: ")
                assert reason in refused[f"cat@{version}"]
                answer = await classify(http, "cat", noise(0))
                assert answer["fedtailor"]["version"] == first
            good = publish_head(store, "cat", gated_tensors(6))
            await http.post("/v1/admin/reload")
            assert (await classify(http, "cat", noise(0)))["fedtailor"]["version"] == good

    asyncio.run(follow())
