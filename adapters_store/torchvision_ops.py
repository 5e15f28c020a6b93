"""Makes torchvision and transformers importable beside a torch build that the wheels around it were not compiled for.

The torchvision and torchaudio wheels of package indexes are CUDA builds; beside the CPU build of torch their native
libraries cannot load. open_clip, transformers and vLLM import torchvision, which then fails on operators that nobody
here calls: declaring those operators first is enough. transformers imports torchaudio whenever it is installed: hiding
it is enough. Where the native libraries load, nothing is changed.
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


class _BeforeImport(MetaPathFinder):
    """Acts at the moment torchvision or transformers is first imported, so that nobody pays for torch before."""

    def __init__(self) -> None:
        self.pending = {"torchvision": _declare_missing_operators, "transformers": _hide_unloadable_torchaudio}

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


def _hide_unloadable_torchaudio() -> None:
    if "torchaudio" not in sys.modules and not _native_libraries_load("torchaudio", "lib/_torchaudio*.so"):
        sys.modules["torchaudio"] = None  # type: ignore[assignment]  # the import system's own mark for "not here"


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
