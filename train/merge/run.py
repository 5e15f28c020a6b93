"""One merge from options to files: which kind of input it is, what merges it, where it goes."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from adapters_store.paths import resolve
from train.lowrank import Factors
from train.merge import adapter_methods, whole_models
from train.merge.adapter_files import AdapterFile, is_adapter, write_peft
from train.merge.model_files import Checkpoint
from train.merge.options import MergeOptions
from train.merge.output_folder import output_folder
from train.merge.whole_models import Stream, Vectors, between, merge_models
from train.merging.adapter import Adapter, Recompressed, together
from train.merging.means import recompress

if TYPE_CHECKING:
    from train.merge.asked_model import AskedModel

Done = Callable[[str], None]


def merge(options: MergeOptions) -> list[str]:
    """Merges what the options name into the folder they name; what there is to say of it, a line each.

    Raises ValueError in one sentence where something does not fit; the folder then does not exist.
    """
    for path in options.adapters:
        if not path.exists():
            raise ValueError(f"--adapters: {path} does not exist")
    adapters = [is_adapter(path) for path in options.adapters]
    if any(adapters) and not all(adapters):
        odd = options.adapters[adapters.index(not adapters[0])]
        raise ValueError(f"--adapters: {odd} and {options.adapters[0]} are an adapter and a full checkpoint; one kind")
    with output_folder(options.out) as folder:
        said = _merge_adapters(options, folder) if all(adapters) else _merge_models(options, folder)
    return [*said, f"written to {options.out}"]


def _merge_adapters(options: MergeOptions, folder: Path) -> list[str]:
    adapters = [AdapterFile(path) for path in options.adapters]
    for _ in together(adapters):
        pass  # refuses, before anything is computed, adapters that do not fit each other
    said = [f"{a.path} has no adapter_config.json: its scale is taken to be 1" for a in adapters if not a.config]
    if options.alpha == "jsd":
        alpha, scores = _resident(options).alpha(adapters[0], adapters[1])
        options = options.model_copy(update={"alpha": alpha})
        said.append(_chosen(alpha, scores))
    rank = options.rank or adapter_methods.natural_rank([adapter.rank for adapter in adapters], options)
    errors: dict[str, float] = {}
    with progress(f"merge by {options.method}", len(adapters[0])) as done:
        modules = _merged_modules(adapters, options, rank, errors, done)
        dtype = getattr(torch, options.dtype or "float32")
        write_peft(folder, adapters[0], rank, modules, base=options.base, dtype=dtype)
    said.append(f"{len(adapters)} adapters merged by {options.method}: {len(adapters[0])} modules of rank {rank}")
    if errors:
        worst = max(errors, key=errors.__getitem__)
        mean = sum(errors.values()) / len(errors)
        said.append(f"relative error of rank {rank}: {mean:.2e} on average, {errors[worst]:.2e} at most ({worst})")
    return said


def _merged_modules(
    adapters: Sequence[AdapterFile], options: MergeOptions, rank: int, errors: dict[str, float], done: Done
) -> Iterator[tuple[str, Factors]]:
    """Module by module in file order; where they are recompressed, ``errors`` is filled with their errors."""
    for names in adapter_methods.parts(adapters[0].names, options):
        part = [adapter_methods.restricted(adapter, names) for adapter in adapters]
        merged = _by_method(part, options, rank)
        if options.rank is not None and not isinstance(merged, Recompressed):
            merged = recompress(merged, rank)
        errors |= merged.errors if isinstance(merged, Recompressed) else {}
        for name in names:
            yield name, merged[name]
            done(name)


def _by_method(adapters: Sequence[Adapter], options: MergeOptions, rank: int) -> Mapping[str, Factors]:
    if options.method == "sap":
        return _resident(options).sap(adapters, rank)
    if options.method == "anchored":
        return _resident(options).anchored(adapters)
    return adapter_methods.ADAPTER_MERGES[options.method](adapters, options, rank)


def _merge_models(options: MergeOptions, folder: Path) -> list[str]:
    if options.method not in whole_models.MODEL_MERGES:
        allowed = ", ".join(whole_models.MODEL_MERGES)
        raise ValueError(f"--method: {options.method} merges adapters alone; full checkpoints allow {allowed}")
    for name in {"rank", "space", "rescale"} & options.model_fields_set:
        raise ValueError(f"--{name}: is for adapters, and {options.adapters[0]} is a full checkpoint")
    if options.base is None:
        raise ValueError("--base: missing; full checkpoints are merged by what they changed of it")
    base, models = Checkpoint(resolve(options.base)), [Checkpoint(path) for path in options.adapters]
    said: list[str] = []
    if options.alpha == "jsd":
        from train.merge.asked_model import alpha_of_models, check_kind  # slow to import, as above

        for path in options.adapters:
            check_kind(path, "--adapters", "a LLaVA's")
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            aligned = Path(beside)
            _write(aligned, base, models, options.model_copy(update={"alpha": 1.0, "dtype": "float32"}))
            alpha, scores = alpha_of_models(aligned, options)
            said.append(_chosen(alpha, scores))
            count = _write(folder, base, [models[0], Checkpoint(aligned)], options, partial(between, alpha))
    else:
        count = _write(folder, base, models, options)
    others = len(models[0]) - count
    said.append(f"{len(models)} checkpoints merged by {options.method}: {count} tensors")
    if others:
        said.append(f"the other {others} tensors are those of {options.adapters[0]}")
    return said


def _write(
    folder: Path,
    base: Checkpoint,
    models: Sequence[Checkpoint],
    options: MergeOptions,
    method: Callable[[Vectors], Stream] | None = None,
) -> int:
    """How many tensors were merged, by the options' method unless another is given."""
    with progress(f"merge by {options.method}", len(models[0])) as done:
        return merge_models(
            folder,
            base,
            models,
            method or (lambda vectors: whole_models.MODEL_MERGES[options.method](vectors, options)),
            language_only=options.method == "ataf",
            dtype=None if options.dtype is None else getattr(torch, options.dtype),
            done=done,
        )


def _resident(options: MergeOptions) -> "AskedModel":
    from train.merge.asked_model import AskedModel  # slow to import, and most merges ask no model

    return AskedModel(options)


def _chosen(alpha: float, scores: Mapping[float, float]) -> str:
    listed = ", ".join(f"{candidate}: {score:.3g}" for candidate, score in scores.items())
    return f"alpha {alpha}, of smallest mean JSD to both ({listed})"


@contextmanager
def progress(title: str, total: int) -> Iterator[Done]:
    """A bar on a terminal's standard error, moved by the name of each of the ``total`` parts that is done."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda name: bar.update(task, advance=1, description=f"{title}: {name}")
