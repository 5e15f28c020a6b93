"""Makes torchvision, transformers and vLLM importable beside a torch build that the wheels around it do not fit.

The torchvision, torchaudio and torchcodec wheels of package indexes are CUDA builds; beside the CPU build of torch
their native libraries cannot load. open_clip, transformers and vLLM import torchvision, which then fails on operators
that nobody here calls: declaring them first is enough. transformers and vLLM import the other two whenever they
are installed: hiding them is enough. Where the native libraries load, nothing is changed.

The project's own processes arm this by importing adapters_store. Run as a script (``make install`` does), this file has
every process of the environment do so: ``accelerate launch`` imports torchvision before anything of ours.
"""

import sys
import sysconfig
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
UNUSED = {"torchaudio": "lib/_torchaudio*.so", "torchcodec": "libtorchcodec_image*.so"}
_kept: list[Any] = []  # a torch.library.Library withdraws its operators when it is collected


class _BeforeImport(MetaPathFinder):
    """Acts at the moment one of these packages is first imported, so that nobody pays for torch before."""

    def __init__(self) -> None:
        self.pending = {
            "torchvision": _declare_missing_operators,
            "transformers": _hide_unloadable,
            "vllm": _hide_unloadable,
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        act = self.pending.pop(fullname, None)
        if act is not None:
            act()
        return None


def install() -> None:
    """Arms the hook; cheap, and harmless when repeated."""
    if not any(isinstance(finder, _BeforeImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeImport())


def _declare_missing_operators() -> None:
    if _native_libraries_load("torchvision", "_C*.so"):
        return
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    _kept.append(library)


def _hide_unloadable() -> None:
    for package, libraries in UNUSED.items():
        if package not in sys.modules and not _native_libraries_load(package, libraries):
            sys.modules[package] = None  # type: ignore[assignment]  # the import system's own mark for "not here"


def _native_libraries_load(package: str, pattern: str) -> bool:
    spec = PathFinder.find_spec(package)
    if spec is None or spec.origin is None:
        return True
    import torch

    try:
        for native in Path(spec.origin).parent.glob(pattern):
            torch.ops.load_library(str(native))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    armed = Path(sysconfig.get_path("purelib")) / "fedtailor_torchvision.pth"
    armed.write_text("import importlib.util as u; u.find_spec('adapters_store') and __import__('adapters_store')\n")
