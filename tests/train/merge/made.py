"""Adapters and models that the merge command is tried on."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from adapters_store.paths import PROJECT_ROOT
from tests.train.merging.drawn import adapter
from train.lowrank import Factors
from train.merge.__main__ import main
from train.merge.adapter_config import CONFIG, PREFIX, WEIGHTS
from train.merge.adapter_files import AdapterFile
from train.merge.model_files import INDEX, WHOLE
from train.models.lora import LoraOptions, lora_files
from train.tensors import Tensors

LLAVA = PROJECT_ROOT / "bases" / "tiny" / "llava"
CLIP = PROJECT_ROOT / "bases" / "tiny" / "clip"
TEXT = {
    "model.embed_tokens.weight": (7, 4),
    "model.layers.0.mlp.down_proj.weight": (4, 6),
    "model.layers.0.self_attn.q_proj.weight": (4, 4),
    "model.norm.weight": (4,),
    "lm_head.weight": (7, 4),
}
"""An untied text model's tensors."""


def merge(method: str, inputs: Sequence[Path], out: Path, *more: str, base: Path = LLAVA) -> int:
    given = ["--method", method, "--base", str(base), "--adapters", *map(str, inputs), "--out", str(out), *more]
    return main(given)


def delta(adapter: AdapterFile, module: str) -> torch.Tensor:
    b, a = adapter[module]
    return b.double() @ a.double()


def noise(tensor: torch.Tensor, scale: float, seed: int) -> torch.Tensor:
    return scale * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(seed))


def put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def drawn_lora(folder: Path, seed: int, rank: int) -> tuple[Path, dict[str, Factors]]:
    """A PEFT folder of α = 2 r, and its factors by the names that it is read by, α/r in B."""
    factors = {PREFIX + name: (2 * b.float(), a.float()) for name, (b, a) in adapter(seed, rank).items()}
    tensors: Tensors = {}
    for name, (b, a) in factors.items():
        tensors |= {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b / 2}
    folder.mkdir()
    save_file(tensors, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank}))
    return folder, factors


def llava_loras(root: Path) -> list[Path]:
    """Two LoRAs of the LLaVA's, of different ranks."""
    weights = load_file(LLAVA / WHOLE)
    folders = []
    for seed, rank in enumerate((4, 3)):
        tensors: Tensors = {}
        for name, weight in weights.items():
            if name.startswith("language_model") and name.endswith(("q_proj.weight", "down_proj.weight")):
                module = "base_model.model.model." + name.replace("model.model", "model").removesuffix(".weight")
                tensors[f"{module}.lora_A.weight"] = noise(torch.zeros(rank, weight.shape[1]), 0.3, seed)
                tensors[f"{module}.lora_B.weight"] = noise(torch.zeros(len(weight), rank), 0.3, seed + 9)
        options = LoraOptions(rank=rank, alpha=2 * rank, targets=("q_proj", "down_proj"))
        folders.append(put(root / f"lora-{seed}", lora_files(options, str(LLAVA), tensors)))
    return folders


def tuned(base: Path, folder: Path, seed: int) -> Path:
    """A copy of the base with every weight moved."""
    shutil.copytree(base, folder)
    weights = load_file(base / WHOLE)
    moved = {n: (w.float() + noise(w, 0.1, seed) * float(w.float().abs().mean())).half() for n, w in weights.items()}
    save_file(moved, folder / WHOLE, metadata={"format": "pt"})
    return folder


def small_llavas(root: Path) -> list[Path]:
    """A base with one layer of each part of the LLaVA, and two models tuned from it; the second lies in two files."""
    shutil.copytree(LLAVA, root / "base")
    weights = load_file(LLAVA / WHOLE)
    save_file({n: w for n, w in weights.items() if "layers.0." in n or "projector" in n}, root / "base" / WHOLE)
    folders = [root / "base", *(tuned(root / "base", root / f"model-{seed}", seed) for seed in (1, 2))]
    folder, moved = folders[-1], load_file(folders[-1] / WHOLE)
    names = sorted(moved)
    (folder / WHOLE).unlink()
    weight_map = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(names)}
    for file in set(weight_map.values()):
        part = {name: moved[name] for name in names if weight_map[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folders


def text_models(root: Path) -> list[Path]:
    """A base and two models of it, in float32."""
    folders = [root / name for name in ("base", "first", "second")]
    for seed, folder in enumerate(folders):
        folder.mkdir()
        save_file({n: noise(torch.zeros(shape), 1.0, 10 * seed + i) for i, (n, shape) in enumerate(TEXT.items())},
                  folder / WHOLE)  # fmt: skip
    return folders
