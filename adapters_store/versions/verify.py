"""Whether the bytes of a version are what its manifest says, and something serving can load without surprises.

Letters: r is the LoRA rank, M the prompt's tokens, N any axis.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError, deserialize

from adapters_store.errors import StoreError, shown
from adapters_store.limits import HEADER_BYTES, TENSOR_NAME_CHARS, TENSORS
from adapters_store.versions.folder import check_sizes
from adapters_store.versions.manifest import FileEntry, Manifest, first_reason
from adapters_store.versions.verify_lora import CONFIG, WEIGHTS, check_lora

LORA_FILES = (CONFIG, WEIGHTS)
# Per float format: the unsigned type its bits are read as, and the exponent bits that are all ones in inf and NaN only.
FLOATS = {"F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80), "F32": ("<u4", 0x7F800000), "F64": ("<u8", 0x7FF << 52)}
LABELS = "I64"  # of the examples that a prompt.safetensors remembers; every integer is finite


def entry_of(data: bytes) -> FileEntry:
    """What the manifest records of a file with these bytes."""
    return FileEntry(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def completed(manifest: Manifest, files: Mapping[str, bytes]) -> Manifest:
    """The manifest with these files listed in it; StoreError where they are not a sound adapter of that manifest."""
    entries = {name: entry_of(data) for name, data in sorted(files.items())}
    try:
        manifest = Manifest.model_validate({**manifest.model_dump(), "files": entries})
    except ValidationError as error:
        raise StoreError(first_reason(error)) from error
    check_content(manifest, files)
    return manifest


def check_bytes(manifest: Manifest, files: Mapping[str, bytes]) -> None:
    """Raises StoreError where a file is missing, unlisted, or not the bytes the manifest hashed."""
    check_sizes(manifest, {name: len(data) for name, data in files.items()})
    for name, data in sorted(files.items()):
        if entry_of(data) != manifest.files[name]:
            raise StoreError(f"file {name} is damaged: its SHA-256 is not the manifest's")


def check_content(manifest: Manifest, files: Mapping[str, bytes]) -> None:
    """Raises StoreError where the files are not a sound adapter of the manifest's family, rank and target modules."""
    _check_names(manifest.family, files)
    shapes = {name: _finite_shapes(name, data) for name, data in files.items() if name.endswith(".safetensors")}
    if "prompt.safetensors" in shapes:
        _check_prompt(shapes["prompt.safetensors"])
    if "connector.safetensors" in shapes:
        _check_connector(manifest, shapes["connector.safetensors"])
    if WEIGHTS in shapes:
        check_lora(manifest, shapes[WEIGHTS], files)


def check_served(manifest: Manifest, base_id: str | None, max_rank: int | None) -> None:
    """Raises StoreError where the version was trained over another base, or has a larger rank than the engine takes."""
    if base_id is not None and manifest.base.id != base_id:
        raise StoreError(f"base is {manifest.base.id} ({manifest.base.name}) where {base_id} is served")
    if max_rank is not None and manifest.rank is not None and manifest.rank > max_rank:
        raise StoreError(f"rank is {manifest.rank} where at most {max_rank} is served")


def _check_names(family: str, files: Mapping[str, bytes]) -> None:
    """A version holds nothing that serving would ignore: of family clip a prompt or a LoRA, and an encoder of none."""
    if encoders := [name for name in files if name.startswith("encoder_")]:
        raise StoreError(f"file {encoders[0]} is refused: no gateway applies an encoder's adapter yet")
    prompt, lora = "prompt.safetensors", [name for name in LORA_FILES if name in files]
    if family == "mllm" and prompt in files:
        raise StoreError(f"file {prompt} is not for a version of family 'mllm': only 'clip' has one")
    if family == "clip" and prompt in files and lora:
        raise StoreError(f"file {lora[0]} is not for a version that has {prompt}: a version of family 'clip' is either")
    for name in (prompt,) if family == "clip" and not lora else LORA_FILES:
        if name not in files:
            raise StoreError(f"file {name} is missing: a version of family {family!r} needs it")


def _finite_shapes(name: str, data: bytes) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor by its name, where all of them can be served as numbers."""
    _check_header(name, data)
    try:
        tensors = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise StoreError(f"file {name} is not a readable safetensors file ({error})") from error
    if not tensors:
        raise StoreError(f"file {name} holds no tensor")
    if len(tensors) > TENSORS:
        raise StoreError(f"file {name} holds {len(tensors)} tensors: at most {TENSORS} are allowed")
    return {key: _finite_shape(name, key, tensor) for key, tensor in tensors}


def _check_header(name: str, data: bytes) -> None:
    """A header is parsed whole before anything of it is known, and each of its entries takes many times its bytes."""
    size = int.from_bytes(data[:8], "little")
    if HEADER_BYTES < size < len(data):
        raise StoreError(f"file {name} has a header of {size} bytes: at most {HEADER_BYTES} are allowed")


def _finite_shape(name: str, key: str, tensor: Mapping[str, Any]) -> tuple[int, ...]:
    shape = tuple(tensor["shape"])
    if len(key) > TENSOR_NAME_CHARS:
        raise StoreError(f"tensor {shown(key)} of {name} has a name of more than {TENSOR_NAME_CHARS} characters")
    if 0 in shape:
        raise StoreError(f"tensor {key} of {name} has shape {list(shape)}: it holds nothing")
    if tensor["dtype"] == LABELS and name == "prompt.safetensors":
        return shape
    if tensor["dtype"] not in FLOATS:
        raise StoreError(f"tensor {key} of {name} is {tensor['dtype']}: allowed are {', '.join(FLOATS)}")
    bits, exponent = FLOATS[tensor["dtype"]]
    values = np.frombuffer(tensor["data"], dtype=bits)
    if np.any((values & values.dtype.type(exponent)) == exponent):
        raise StoreError(f"tensor {key} of {name} holds a value that is not finite")
    return shape


def _check_prompt(tensors: Mapping[str, tuple[int, ...]]) -> None:
    found = shown({key: list(shape) for key, shape in tensors.items()})
    if "prompt" not in tensors or len(tensors["prompt"]) != 2:
        raise StoreError(f"file prompt.safetensors holds {found} where a tensor 'prompt' of shape (M, width) is needed")


def _check_connector(manifest: Manifest, tensors: Mapping[str, tuple[int, ...]]) -> None:
    import torch  # slow to import, and most versions have no connector

    from adapters_store.personal.connector import CONNECTOR, read_connector

    if manifest.family != "mllm":
        raise StoreError(f"file {CONNECTOR} is not for a version of family {manifest.family!r}: only 'mllm' has one")
    for key, shape in tensors.items():
        axes = 1 if key.endswith("bias") else 2
        if len(shape) != axes:
            raise StoreError(f"tensor {key} of {CONNECTOR} has shape {list(shape)} where {axes} axes are needed")
    try:
        read_connector({key: torch.empty(shape, device="meta") for key, shape in tensors.items()})
    except ValueError as error:
        raise StoreError(str(error)) from error
