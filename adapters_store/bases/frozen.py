"""Which base an adapter belongs to, and that base as serving needs it: the 4-bit weights of training, dequantised.

Training runs on NF4 weights (bitsandbytes: blocks of 64, statistics quantised again). vLLM gets the same numbers as
plain floats, so both sides compute with one set of weights; the base id binds an adapter to them.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file

Quantization = Literal["nf4"] | None

# The checkpoint tensors that are 4-bit: linears of the language model's layers, nothing else.
QUANTISED = re.compile(
    r"(^|\.)language_model\.(.+\.)?layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)\.weight$"
)
SETTINGS = {
    "nf4": {"quant_type": "nf4", "blocksize": 64, "compress_statistics": True, "tensors": QUANTISED.pattern},
    None: {},
}
IDENTITY_SUFFIXES = {".json", ".jinja", ".model", ".safetensors", ".txt"}


def base_id(folder: Path, quantization: Quantization) -> str:
    """16 hex digits over what decides the base's numbers: config, tokenizer, template, weights, quantisation.

    The model card and the folder's name do not count. Raises FileNotFoundError when the folder holds no safetensors.
    """
    digest = hashlib.sha256(json.dumps(SETTINGS[quantization], sort_keys=True).encode())
    for path in _parts(folder):
        with path.open("rb") as file:
            digest.update(f"\0{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}".encode())
    return digest.hexdigest()[:16]


def clip_base_id(name: str | Path, pretrained: str | None = None) -> str:
    """16 hex digits over a dual encoder's numbers: ``base_id`` of a folder, else of a model of open_clip by name.

    A named model counts by its architecture and the content of its weights (``clip_weights``).
    """
    if Path(name).is_dir():
        return base_id(Path(name), None)
    import open_clip  # slow to import, and folders do not need it

    digest = hashlib.sha256(json.dumps(open_clip.get_model_config(str(name)), sort_keys=True).encode())
    with clip_weights(str(name), pretrained).open("rb") as file:
        digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def clip_weights(name: str, pretrained: str | None) -> Path:
    """The file of a named open_clip model's weights: ``pretrained`` itself, or what its tag has in the local cache.

    Raises ValueError for a name or tag that open_clip does not know, FileNotFoundError where there is no such file.
    """
    import open_clip
    from open_clip.pretrained import download_pretrained

    if name not in open_clip.list_models():
        raise ValueError(f"base {name!r} is neither a folder nor a model that open_clip knows")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if pretrained is None or not (pretrained in tags or Path(pretrained).is_file()):
        raise ValueError(f"base {name} needs weights, a file or one of {', '.join(tags)}; found {pretrained!r}")
    if Path(pretrained).is_file():
        return Path(pretrained)
    try:
        return Path(download_pretrained(open_clip.get_pretrained_cfg(name, pretrained)))
    except Exception as error:  # whatever the download raises where the weights are not cached
        raise FileNotFoundError(
            f"base {name}: the weights {pretrained!r} are not in the local cache and could not be "
            f"fetched ({type(error).__name__}); give a file instead"
        ) from error


def export_base(folder: Path, out_root: Path, quantization: Quantization, dtype: str = "float32") -> Path:
    """A Hugging Face folder with the base's weights in ``dtype``, 4-bit ones quantised and dequantised; made once.

    The weights are cast to ``dtype`` before they are quantised, as a trainer that loads the base in ``dtype`` does, so
    the result equals its dequantised weights bit for bit (quantisation on the CPU). The folder appears by one rename.
    ValueError where there is nothing to quantise.
    """
    target = out_root / f"{base_id(folder, quantization)}-{dtype}"
    if target.is_dir():
        return target
    if quantization is not None and not any(map(QUANTISED.search, tensor_names(folder))):
        raise ValueError(
            f"base {str(folder)!r} has no tensor to quantise: none is a linear of a language_model's layers"
        )
    out_root.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=out_root))
    try:
        for path in _parts(folder):
            _export_file(path, partial / path.name, quantization, dtype)
        _rename(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def as_trained(name: str, weight: torch.Tensor, quantization: Quantization, dtype: torch.dtype) -> torch.Tensor:
    """The checkpoint tensor ``name`` as training sees it, same shape, in ``dtype``; integer tensors pass unchanged."""
    if not weight.is_floating_point():
        return weight
    weight = weight.to(dtype)
    if quantization is None or not QUANTISED.search(name):
        return weight
    from bitsandbytes import functional  # slow to import, and most callers only need the id

    packed, state = functional.quantize_4bit(weight, blocksize=64, compress_statistics=True, quant_type="nf4")
    return functional.dequantize_4bit(packed, state)


def tensor_names(folder: Path) -> list[str]:
    """Of all tensors in the folder's safetensors files."""
    names: list[str] = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as shard:
            names += shard.keys()
    return names


def _parts(folder: Path) -> list[Path]:
    parts = sorted(path for path in folder.glob("*") if path.suffix in IDENTITY_SUFFIXES and path.is_file())
    if not any(path.suffix == ".safetensors" for path in parts):
        raise FileNotFoundError(f"base {str(folder)!r} holds no .safetensors file; a model folder is needed")
    return parts


def _export_file(source: Path, target: Path, quantization: Quantization, dtype: str) -> None:
    if source.suffix == ".safetensors":
        with safe_open(source, framework="pt") as shard:
            tensors = {
                name: as_trained(name, shard.get_tensor(name), quantization, getattr(torch, dtype)).contiguous()
                for name in shard.keys()  # noqa: SIM118  a safetensors file is no mapping
            }
            save_file(tensors, target, metadata=shard.metadata() or {"format": "pt"})
    elif source.name == "config.json":
        target.write_text(json.dumps(_with_dtype(json.loads(source.read_text()), dtype), indent=2))
    else:
        shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _with_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The config with every stated dtype, nested ones too, replaced by ``dtype``."""
    nested = {key: _with_dtype(value, dtype) if isinstance(value, dict) else value for key, value in config.items()}
    return {key: dtype if key in ("dtype", "torch_dtype") else value for key, value in nested.items()}


def _rename(partial: Path, target: Path) -> None:
    try:
        partial.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another process finished the same export first
            raise
