"""Merging of full checkpoints through their task vectors τ_k = W_k − W_C, a tensor at a time.

Only tensors that the base and every model have in one shape are merged, the others are the first model's. ATAF merges
the language model alone where a checkpoint has one by that name: the other parts (vision tower, projector) need not be
shared and are the first model's (docs/methods.md#ataf).
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from train.merge.model_files import INDEX, Checkpoint, write_tensors
from train.merge.options import MergeOptions
from train.merging.adapter import Computed
from train.merging.ataf import fused
from train.merging.dare import dare_streamed
from train.merging.selection import kept_masks
from train.merging.ties import ties_streamed
from train.tensors import Schema, generator

Vectors = Sequence[Mapping[str, Tensor]]
Stream = Iterator[tuple[str, Tensor]]
LANGUAGE: Final = re.compile(r"(^|\.)(language_model|lm_head)\.")
MULTIMODAL: Final = re.compile(r"(^|\.)language_model\.")
"""A LLaVA has tensors named so; a text model may have an lm_head of its own, beside layers that are the model too."""
COPIED: Final = {".json", ".jinja", ".model", ".txt"}
"""Of the first model's other files; weights in other formats would not be the merged ones."""


def _mean(vectors: Vectors, options: MergeOptions) -> Stream:
    for name in vectors[0]:
        yield name, _mean_of(vector[name] for vector in vectors)


def _mean_of(tensors: Iterable[Tensor]) -> Tensor:
    """Their mean, of which two are in memory at a time."""
    total, count = torch.zeros(()), 0
    for tensor in tensors:
        total, count = total + tensor, count + 1
    return total / count


def _scaled(vectors: Vectors, options: MergeOptions) -> Stream:
    return ((name, options.multiplier * tensor) for name, tensor in _mean(vectors, options))


def _ties(vectors: Vectors, options: MergeOptions) -> Stream:
    merged = ties_streamed(vectors, options.kept, options.scope)
    return ((name, options.multiplier * tensor) for name, tensor in merged)


def _dare(vectors: Vectors, options: MergeOptions) -> Stream:
    return dare_streamed(vectors, options.seed, 1 - options.kept)


def _magnitude(vectors: Vectors, options: MergeOptions) -> Stream:
    return _pruned(vectors, options, lambda k, name: vectors[k][name].abs())


def _random(vectors: Vectors, options: MergeOptions) -> Stream:
    def draw(k: int, name: str) -> Tensor:
        random = generator(options.seed, "saliency", k, name)
        return torch.rand(vectors[k][name].shape, generator=random, dtype=torch.float64)

    return _pruned(vectors, options, draw)


def _pruned(vectors: Vectors, options: MergeOptions, score: Callable[[int, str], Tensor]) -> Stream:
    def scores(k: int) -> Iterator[Tensor]:
        return (score(k, name) for name in vectors[k])

    masks = [kept_masks(partial(scores, k), options.ratio, options.scope) for k in range(len(vectors))]
    for name in vectors[0]:
        yield name, _mean_of(v[name] * next(mask) for v, mask in zip(vectors, masks, strict=True))


def _ataf(vectors: Vectors, options: MergeOptions) -> Stream:
    assert options.alpha != "jsd"
    return ((name, fused(vectors[0][name], vectors[1][name], options.alpha)) for name in vectors[0])


def between(alpha: float, vectors: Vectors) -> Stream:
    """(1 − α) of the first and α of the second."""
    return ((name, torch.lerp(vectors[0][name], vectors[1][name], alpha)) for name in vectors[0])


MODEL_MERGES: Final[dict[str, Callable[[Vectors, MergeOptions], Stream]]] = {
    "ataf": _ataf,
    "mean": _mean,
    "scaled": _scaled,
    "ties": _ties,
    "dare": _dare,
    "magnitude": _magnitude,
    "random": _random,
}


def merge_models(
    folder: Path,
    base: Checkpoint,
    models: Sequence[Checkpoint],
    method: Callable[[Vectors], Stream],
    *,
    language_only: bool,
    dtype: torch.dtype | None,
    done: Callable[[str], None],
) -> int:
    """Writes the merged model as the first one lies on disk, its other files copied; how many tensors were merged.

    ``dtype``: of floating tensors, by default as they are in the first. ``done`` is told each tensor's name.
    """
    names = shared(base, models, language_only)
    if not names:
        raise ValueError(f"{base.path}: shares no tensor of the same name and shape with every model to merge")
    first = models[0]
    merged = method([_task_vector(model, base, names) for model in models])
    schema = {n: (shape, dtype if dtype and own.is_floating_point else own) for n, (shape, own) in first.schema.items()}
    tensors = _every(first, base, set(names), merged, done)
    for file, group in groupby(schema, key=first.files.__getitem__):
        part = {name: schema[name] for name in group}
        write_tensors(folder / file.name, part, islice(tensors, len(part)), first.metadata[file])
    if first.path.is_dir():
        _write_other_files(folder, first, schema, dtype)
    return len(names)


def shared(base: Checkpoint, models: Sequence[Checkpoint], language_only: bool) -> list[str]:
    """Floating tensors that all have in one shape, in the first model's order."""
    language = language_only and any(MULTIMODAL.search(name) for name in models[0])
    return [
        name
        for name, (shape, dtype) in models[0].schema.items()
        if dtype.is_floating_point
        and all(name in other and other.schema[name][0] == shape for other in (base, *models[1:]))
        and (not language or LANGUAGE.search(name))
    ]


def _task_vector(model: Checkpoint, base: Checkpoint, names: Sequence[str]) -> Mapping[str, Tensor]:
    def difference(name: str) -> Tensor:
        tau = model[name].to(torch.float64) - base[name].to(torch.float64)
        if not bool(tau.isfinite().all()):
            raise ValueError(f"{model.path}: {name} minus the base's holds a value that is not finite")
        return tau

    return Computed(names, difference)


def _every(first: Checkpoint, base: Checkpoint, names: set[str], merged: Stream, done: Callable[[str], None]) -> Stream:
    for name in first:
        if name in names:
            _, tau = next(merged)
            yield name, tau.add_(base[name])
        else:
            yield name, first[name]
        done(name)


def _write_other_files(folder: Path, first: Checkpoint, schema: Schema, dtype: torch.dtype | None) -> None:
    for path in sorted(first.path.iterdir()):
        if path.is_file() and path.suffix in COPIED and not path.name.endswith(".index.json"):
            shutil.copyfile(path, folder / path.name)
    config = folder / "config.json"
    if dtype is not None and config.is_file():
        stated = _with_dtype(json.loads(config.read_text()), str(dtype).removeprefix("torch."))
        config.write_text(json.dumps(stated, indent=2))
    if (first.path / INDEX).is_file():
        size = sum(torch.Size(shape).numel() * own.itemsize for shape, own in schema.values())
        index = {"metadata": {"total_size": size}, "weight_map": {n: file.name for n, file in first.files.items()}}
        (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True))


def _with_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The config with every stated dtype, nested ones too, replaced."""
    nested = {key: _with_dtype(value, dtype) if isinstance(value, dict) else value for key, value in config.items()}
    return {key: dtype if key in ("dtype", "torch_dtype") else value for key, value in nested.items()}
