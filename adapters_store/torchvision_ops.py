"""Makes ``import torchvision`` work beside a torch build that its native library was not compiled for.

open_clip and vLLM import torchvision, whose wheels on package indexes are CUDA builds; beside the CPU build of torch
their native library cannot load and the import fails on operators that nobody here calls. Declaring those operators
first is enough. Where the native library loads, nothing is changed.
"""

import sys
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
_kept: list[Any] = []  # a torch.library.Library withdraws its operators when it is collected


class _BeforeTorchvision(MetaPathFinder):
    """Declares the missing operators at the moment torchvision is first imported, so that nobody pays for torch before."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            _declare_missing_operators()
        return None


def install() -> None:
    """Arms the hook; cheap, and harmless when repeated or when torchvision is already imported."""
    if "torchvision" not in sys.modules and not any(isinstance(f, _BeforeTorchvision) for f in sys.meta_path):
        sys.meta_path.insert(0, _BeforeTorchvision())


def _declare_missing_operators() -> None:
    spec = PathFinder.find_spec("torchvision")
    if spec is None or spec.origin is None or _native_library_loads(Path(spec.origin).parent):
        return
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    _kept.append(library)


def _native_library_loads(package: Path) -> bool:
    import torch

    try:
        for native in package.glob("_C*.so"):
            torch.ops.load_library(str(native))
    except OSError:
        return False
    return True
