import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from safetensors.torch import save as save_torch

from adapters_store.limits import HEADER_BYTES, TENSORS
from adapters_store.store import Store, StoreError
from adapters_store.versions.verify import entry_of
from tests.adapters_store.artefacts import BASE, MODULES, lora_files, lora_tensors, manifest, prompt_files

OUTSIDE = ["model.vision_tower.encoder.layers.0.self_attn.q_proj"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_finite_tensors_of_every_float_format_pass_and_others_are_refused(
    store: Store, dtype: torch.dtype, bad: float
) -> None:
    values = torch.full((2, 3), torch.finfo(dtype).max, dtype=dtype)
    version = store.publish(manifest(), {"prompt.safetensors": save_torch({"prompt": values})}, {}, activate=False)
    assert store.verify("amy", version).version == version
    values[1, 2] = bad
    with pytest.raises(StoreError, match=r"tensor prompt of prompt\.safetensors holds a value that is not finite"):
        store.publish(manifest(), {"prompt.safetensors": save_torch({"prompt": values})}, {}, activate=False)


def test_a_sound_lora_passes_and_is_held_to_the_base_and_rank_served(store: Store) -> None:
    version = store.publish(manifest(family="mllm"), lora_files(), {}, activate=False)
    store.verify("amy", version, base_id=BASE, max_rank=4)
    with pytest.raises(StoreError, match=f"base is {BASE} .bases/tiny/mllm. where {'f' * 16} is served"):
        store.verify("amy", version, base_id="f" * 16)
    with pytest.raises(StoreError, match="rank is 4 where at most 2 is served"):
        store.verify("amy", version, max_rank=2)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (lora_files(bias="all"), "has bias 'all', which serving does not support"),
        (lora_files(use_dora=True), "has use_dora True"),
        (lora_files(modules_to_save=["lm_head"]), "has modules_to_save"),
        (lora_files(rank_pattern={"q_proj": 8}), "has rank_pattern"),
        (lora_files(peft_type="IA3"), "(peft_type: Input should be 'LORA', found 'IA3')"),
        (lora_files(lora_alpha=float("nan")), "is no LoRA's configuration (it is not JSON"),
        *((lora_files(lora_alpha=bad), "(lora_alpha: ") for bad in (True, 0, -1, 1e7, "8", None)),
        *((lora_files(r=bad), "(r: ") for bad in (True, 4.0, "4", 10**6)),
        (lora_files(r=10**30), "(it holds an integer of more than 64 bits)"),
        (lora_files(use_rslora="no"), "(use_rslora: "),
        (lora_files(layer_replication=[[0, 2]]), "has layer_replication"),
        (lora_files(r=8), "has r 8 where the manifest's rank is 4"),
        (lora_files(target_modules=["q_proj"]), "has target_modules"),
        (lora_files(lora_tensors(rank=2)), "has rank 2 where adapter_config.json says 4"),
        (
            lora_files(lora_tensors(modules=["model.language_model.layers.0.mlp.up_proj"])),
            "not among the target_modules",
        ),
        (lora_files({"lm_head.weight": np.zeros((2, 2), np.float32)}), "only lora_A and lora_B weights are"),
        (lora_files(dict(list(lora_tensors().items())[:-1])), "has no matching pair"),
        (lora_files({}), "holds no tensor"),
        (lora_files() | {"adapter_config.json": b"[]"}, "is no LoRA's configuration (the whole: Input should be"),
        (lora_files() | {"adapter_model.safetensors": b"\x80\x04K."}, "is not a readable safetensors file"),
        ({"adapter_config.json": b"{}"}, "adapter_model.safetensors is missing"),
        (lora_files({k: v.astype(np.int8) for k, v in lora_tensors().items()}), "is I8: allowed are F16"),
    ],
)
def test_what_serving_would_drop_or_crash_on_is_refused(store: Store, files: dict[str, bytes], sentence: str) -> None:
    with pytest.raises(StoreError) as refusal:
        store.publish(manifest(family="mllm"), files, {}, activate=True)
    assert sentence in str(refusal.value)
    assert store.clients() == []


def test_an_adapter_of_the_vision_tower_alone_is_refused(store: Store) -> None:
    files = lora_files(lora_tensors(modules=OUTSIDE), target_modules=["q_proj"])
    with pytest.raises(StoreError, match="outside the language model"):
        store.publish(manifest(family="mllm", target_modules=["q_proj"]), files, {}, activate=True)


ENCODER = {f"encoder_{kind}/{name}": data for kind in ("audio", "vision") for name, data in lora_files().items()}


@pytest.mark.parametrize(
    ("family", "files", "sentence"),
    [
        ("mllm", lora_files() | ENCODER, "file encoder_audio/adapter_config.json is refused: no gateway applies"),
        ("clip", prompt_files() | ENCODER, "file encoder_audio/adapter_config.json is refused: no gateway applies"),
        ("mllm", lora_files() | prompt_files(), "file prompt.safetensors is not for a version of family 'mllm'"),
    ],
)
def test_what_serving_would_ignore_is_refused_when_published_and_when_served(
    store: Store, family: str, files: dict[str, bytes], sentence: str
) -> None:
    with pytest.raises(StoreError, match=sentence):
        store.publish(manifest(family=family), files, {}, activate=True)
    assert store.clients() == []
    said = manifest(family=family, files={name: entry_of(data) for name, data in files.items()})
    for name, data in {**files, "manifest.json": said.canonical_json(), "report.json": b"{}"}.items():
        path = store.root / "amy" / said.version / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for call in (store.read, store.activate):
        with pytest.raises(StoreError, match=f"amy@{said.version} is refused: {sentence}"):
            call("amy", said.version)
    assert store.families("amy") == []


BLOCK = "visual.transformer.resblocks.0."
LINEARS = [BLOCK + end for end in ("attn", "attn.base_layer.out_proj", "mlp.c_fc", "mlp.c_proj")]
VISION = r"visual\.transformer\.resblocks\.\d+\.(attn|mlp\.c_fc|mlp\.c_proj)"


def vision_files(modules: list[str] = LINEARS, **changed: Any) -> dict[str, bytes]:
    """A LoRA on CLIP's vision tower, in PEFT's names."""
    return lora_files(lora_tensors(modules=modules), **({"target_modules": VISION} | changed))


@pytest.mark.parametrize("targets", [VISION, ["attn", "c_fc", "c_proj"]])
def test_a_sound_lora_on_the_vision_tower_passes(store: Store, targets: str | list[str]) -> None:
    said = manifest(rank=4, target_modules=targets)
    version = store.publish(said, vision_files(target_modules=targets), {}, activate=True)
    assert "adapter_model.safetensors" in store.verify("amy", version).manifest.files
    weights = store.root / "amy" / version / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(StoreError, match="is damaged: its SHA-256 is not the manifest's"):
        store.verify("amy", version)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (vision_files([*LINEARS, "transformer.resblocks.0.attn"], target_modules=["attn"]), "has target_modules"),
        (vision_files([*LINEARS, "transformer.resblocks.0.attn"]), "is not among the target_modules"),
        (vision_files([*LINEARS, "visual.proj"]), "module visual.proj is not among the target_modules"),
        (lora_files(target_modules=VISION), "is not among the target_modules"),
        (vision_files(use_dora=True), "has use_dora True"),
        (vision_files(r=8), "has r 8 where the manifest's rank is 4"),
        (vision_files() | prompt_files(), "is not for a version that has prompt.safetensors"),
        (lora_files(lora_tensors(2, modules=LINEARS), target_modules=VISION), "has rank 2 where adapter_config.json"),
        (lora_files(lora_tensors(4, np.nan, LINEARS), target_modules=VISION), "holds a value that is not finite"),
        (vision_files() | {"adapter_model.safetensors": b"\x80\x04K."}, "is not a readable safetensors file"),
        ({"adapter_config.json": b"{}"}, "file adapter_model.safetensors is missing"),
        ({}, "file prompt.safetensors is missing"),
    ],
)
def test_what_is_no_lora_on_the_vision_tower_is_refused(store: Store, files: dict[str, bytes], sentence: str) -> None:
    with pytest.raises(StoreError) as refusal:
        store.publish(manifest(rank=4, target_modules=VISION), files, {}, activate=True)
    assert sentence in str(refusal.value)
    assert store.clients() == []


def test_a_lora_of_clips_text_tower_is_refused(store: Store) -> None:
    files = vision_files(["transformer.resblocks.0.mlp.c_fc", *LINEARS], target_modules=["c_fc", "attn", "c_proj"])
    with pytest.raises(StoreError, match=r"module transformer\.\S+ of \S+ is outside the vision tower, which is all"):
        store.publish(manifest(rank=4, target_modules=["c_fc", "attn", "c_proj"]), files, {}, activate=True)


def test_a_lora_of_the_language_model_has_no_wrapped_out_proj(store: Store) -> None:
    wrapped = MODULES[0] + ".base_layer.out_proj"
    with pytest.raises(StoreError, match="is not among the target_modules"):
        store.publish(manifest(family="mllm"), lora_files(lora_tensors(modules=[wrapped])), {}, activate=True)


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [((4,), "a tensor 'prompt' of shape"), ((1, 4, 8), "a tensor 'prompt' of shape"), ((0, 8), "it holds nothing")],
)
def test_a_prompt_is_a_matrix(store: Store, shape: tuple[int, ...], sentence: str) -> None:
    files = {"prompt.safetensors": save({"prompt": np.zeros(shape, np.float32)})}
    with pytest.raises(StoreError, match=sentence):
        store.publish(manifest(), files, {}, activate=True)


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ({f"t{i}": np.zeros(1, np.int8) for i in range(TENSORS + 1)}, "65537 tensors"),
        ({"prompt": np.zeros((2, 2), np.float32), "x" * 600: np.zeros(1, np.float32)}, "name of more than 512"),
        ({"prompt": np.zeros((2, 2), np.float32), "others": np.zeros((2**40, 0), np.float32)}, "it holds nothing"),
    ],
)
def test_a_file_of_more_than_any_adapter_has_is_refused(
    store: Store, tensors: dict[str, np.ndarray], sentence: str
) -> None:
    with pytest.raises(StoreError, match=sentence):
        store.publish(manifest(), {"prompt.safetensors": save(tensors)}, {}, activate=True)


def test_a_header_larger_than_any_adapters_is_not_parsed(store: Store) -> None:
    header = b" " * (HEADER_BYTES + 1)
    data = len(header).to_bytes(8, "little") + header + b"tensors"
    with pytest.raises(StoreError, match=f"has a header of {len(header)} bytes"):
        store.publish(manifest(), {"prompt.safetensors": data}, {}, activate=True)


def connector(**changed: np.ndarray | None) -> dict[str, bytes]:
    """A LoRA with a connector of a task adapter, a client adapter and a router; None takes a tensor out."""
    shapes = {"linear_1.weight": (6, 8), "linear_1.bias": (6,), "linear_2.weight": (10, 6), "linear_2.bias": (10,)}
    tensors = {
        f"{n}.{part}": np.ones(s, np.float32) for n in ("experts.0.task", "client") for part, s in shapes.items()
    }
    tensors |= {"router.weight": np.ones((1, 8), np.float32)} | changed
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    return lora_files() | {"connector.safetensors": save(kept)}


def test_a_sound_connector_passes(store: Store) -> None:
    version = store.publish(manifest(family="mllm"), connector(), {}, activate=True)
    assert "connector.safetensors" in store.verify("amy", version).manifest.files


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (connector(**{"client.linear_1.bias": np.full(6, np.nan, np.float32)}), "holds a value that is not finite"),
        (
            connector(**{"client.linear_2.bias": None}),
            "client.linear_2.bias of connector.safetensors is missing",
        ),
        (connector(**{"experts.0.task.linear_1.weight": None}), "they must count up from 0"),
        (connector(extra=np.ones((1, 1), np.float32)), "holds 10 tensors, of which 9 belong to its connector"),
        (
            connector(**{"router.weight": np.ones((1, 7), np.float32)}),
            "of connector.safetensors has shape [1, 7]",
        ),
        (connector(**{"router.weight": np.ones(8, np.float32)}), "has shape [8] where 2 axes are needed"),
        (connector(**{"client.linear_1.weight": np.ones((6, 8), np.int64)}), "is I64: allowed are F16"),
    ],
)
def test_what_is_no_connector_is_refused(store: Store, files: dict[str, bytes], sentence: str) -> None:
    with pytest.raises(StoreError) as refusal:
        store.publish(manifest(family="mllm"), files, {}, activate=True)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_classifier_has_no_connector(store: Store) -> None:
    files = prompt_files() | {"connector.safetensors": connector()["connector.safetensors"]}
    with pytest.raises(StoreError, match="is not for a version of family 'clip'"):
        store.publish(manifest(), files, {}, activate=True)


def test_every_kind_of_damage_on_disk_is_refused_with_its_reason(store: Store) -> None:
    version = store.publish(manifest(), prompt_files(), {}, activate=True)
    folder = store.root / "amy" / version
    prompt, intact = folder / "prompt.safetensors", (folder / "prompt.safetensors").read_bytes()

    def refused(sentence: str) -> None:
        with pytest.raises(StoreError) as refusal:
            store.verify("amy", version)
        assert sentence in str(refusal.value)

    prompt.write_bytes(intact[:-1] + b"\x01")
    refused("is damaged: its SHA-256 is not the manifest's")
    prompt.write_bytes(intact[:-1])
    refused(f"has {len(intact) - 1} bytes where the manifest says {len(intact)}")
    prompt.unlink()
    refused("file prompt.safetensors is missing")
    prompt.symlink_to("/etc/hostname")
    refused("file prompt.safetensors is a link")
    prompt.unlink()
    prompt.write_bytes(intact)
    (folder / "extra.bin").write_bytes(b"x")
    refused("file extra.bin is not in the manifest")
    (folder / "extra.bin").unlink()
    store.verify("amy", version)
    said = json.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_text(json.dumps(said | {"method": "other"}))
    refused("manifest.json is that of amy@")
    (folder / "manifest.json").write_bytes(b"{")
    refused("manifest.json is damaged")
    (folder / "manifest.json").unlink()
    refused("manifest.json is missing")
