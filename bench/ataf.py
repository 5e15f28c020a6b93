"""``python bench/ataf.py``: what merging by ATAF costs, measured.

    lora     two LoRAs of a 7B Llama's shapes, rank 16 on every linear, folder to folder through the merge command
    matrix   one pair of full 4096 × 11008 matrices
    models   two full checkpoints of 64 matrices, 1024 × 2816 in float16, from disk to disk

Each in a process of its own, so that its peak memory is its own. Results, with the machine they were measured on, go
to ataf.json in the folder --out, with --record in bench/results.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
if sys.path and Path(sys.path[0]).resolve() == ROOT / "bench":
    sys.path[0] = str(ROOT)  # run as a script: the packages are beside bench/, not in it
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command sets it: threads that spin starve each other

import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from bench.prompt_study.machine import MIB, default_threads, machine, peak_memory_mib  # noqa: E402
from bench.results_folder import add_out, results_folder  # noqa: E402
from train.merge.options import MergeOptions  # noqa: E402
from train.merge.run import merge  # noqa: E402
from train.merging.ataf import fused  # noqa: E402

WIDTH, HIDDEN, LAYERS, RANK = 4096, 11008, 32, 16
LINEARS: Final = {
    **{f"self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"},
    "mlp.gate_proj": (HIDDEN, WIDTH),
    "mlp.up_proj": (HIDDEN, WIDTH),
    "mlp.down_proj": (WIDTH, HIDDEN),
}
"""(d_out, d_in) of a layer's linears in Llama 7B."""
Measured = dict[str, float]


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, writes, prints."""
    parser = argparse.ArgumentParser(description="Time and peak memory of merging by ATAF.")
    add_out(parser)
    parser.add_argument(
        "--threads", type=int, default=default_threads(), help="of each measurement (default: %(default)s)"
    )
    parser.add_argument("--small", action="store_true", help="tiny shapes: shows that it runs, measures nothing")
    options = parser.parse_args(argv)
    results_folder(options)
    sizes = (2, 64, 96) if options.small else (LAYERS, WIDTH, HIDDEN)
    with tempfile.TemporaryDirectory() as folder:
        loras = alone(write_loras, Path(folder), sizes[0], sizes[1] if options.small else None)
        written = alone(write_models, Path(folder), *((3, 32) if options.small else (64, 1024)))
        load = os.getloadavg()[0]
        results: dict[str, Any] = {
            "lora": {**loras, **alone(lora, options.threads, Path(folder))},
            "models": {**written, **alone(merge_models, options.threads, Path(folder))},
            "matrix": {"d_out": sizes[1], "d_in": sizes[2], **alone(matrix, options.threads, sizes[1], sizes[2])},
        }
    results |= {"threads": options.threads, "load_before": round(load, 2), "machine": machine()}
    (options.out / "ataf.json").write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


def alone(measure: Callable[..., Measured], *arguments: Any) -> Measured:
    """What ``measure`` returns in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def write_loras(folder: Path, layers: int, width: int | None) -> Measured:
    """Two files of LoRA factors with random entries."""
    for seed in (0, 1):
        random = torch.Generator().manual_seed(seed)
        tensors = {}
        for layer in range(layers):
            for name, shape in LINEARS.items():
                d_out, d_in = shape if width is None else (width, width)
                module = f"base_model.model.model.layers.{layer}.{name}"
                tensors[f"{module}.lora_A.weight"] = torch.randn(RANK, d_in, generator=random)
                tensors[f"{module}.lora_B.weight"] = torch.randn(d_out, RANK, generator=random)
        save_file(tensors, folder / f"{seed}.safetensors")
    return {"modules": len(tensors) // 2, "rank": RANK}


def lora(threads: int, folder: Path) -> Measured:
    """The whole command, reading and writing included."""
    torch.set_num_threads(threads)
    before = peak_memory_mib()
    started, cpu = time.monotonic(), time.process_time()
    files = (folder / "0.safetensors", folder / "1.safetensors")
    merge(MergeOptions(method="ataf", adapters=files, out=folder / "merged"))
    return _measured(started, cpu, before)


def matrix(threads: int, d_out: int, d_in: int) -> Measured:
    """One pair, float32 in, float64 inside."""
    torch.set_num_threads(threads)
    random = torch.Generator().manual_seed(0)
    a, b = (torch.randn(d_out, d_in, generator=random) for _ in range(2))
    before = peak_memory_mib()
    started, cpu = time.monotonic(), time.process_time()
    fused(a, b, 0.5)
    return _measured(started, cpu, before)


def write_models(folder: Path, count: int, width: int) -> Measured:
    """A base and two models; ``file_mib``: size of each."""
    for number, name in enumerate(("base", "a", "b")):
        random = torch.Generator().manual_seed(number)
        (folder / name).mkdir()
        shape = (width, 11 * width // 4)
        tensors = {f"layers.{i}.weight": torch.randn(shape, generator=random).half() for i in range(count)}
        save_file(tensors, folder / name / "model.safetensors", metadata={"format": "pt"})
    size = (folder / "a" / "model.safetensors").stat().st_size / MIB
    return {"matrices": count, "file_mib": round(size)}


def merge_models(threads: int, folder: Path) -> Measured:
    """The command on these checkpoints."""
    torch.set_num_threads(threads)
    before = peak_memory_mib()
    started, cpu = time.monotonic(), time.process_time()
    given = (folder / "a", folder / "b")
    merge(MergeOptions(method="ataf", adapters=given, base=str(folder / "base"), out=folder / "model"))
    return _measured(started, cpu, before)


def _measured(started: float, cpu: float, before: float) -> Measured:
    return {
        "seconds": round(time.monotonic() - started, 2),
        "processor_seconds": round(time.process_time() - cpu, 2),
        "peak_mib": round(peak_memory_mib()),
        "peak_mib_before": round(before),
    }


if __name__ == "__main__":
    main()
