"""Whether a LoRA fits the base it is loaded over.

vLLM copies a smaller matrix into a corner of its slot, and ignores modules it does not know: both answer, wrongly.
"""

import re
from pathlib import Path

from safetensors import safe_open

WEIGHT = re.compile(r"(?:^|\.)language_model\.(?:model\.)?(?P<module>layers\.\d+\..+_proj)\.weight$")
LORA = re.compile(r"\.language_model\.(?:model\.)?(?P<module>layers\.\d+\..+_proj)\.lora_(?P<side>[AB])\.weight$")

Shapes = dict[str, tuple[int, int]]  # (out, in) of a linear by its place in the language model


def linear_shapes(base: Path) -> Shapes:
    """The linears in the layers of the checkpoint's language model."""
    shapes: Shapes = {}
    for path in sorted(base.glob("*.safetensors")):
        for name, shape in _tensor_shapes(path).items():
            if found := WEIGHT.search(name):
                shapes[found["module"]] = (shape[0], shape[1])
    return shapes


def check_linears(adapter: Path, linears: Shapes) -> None:
    """ValueError with one sentence where a LoRA tensor is for no linear of the base, or for one of another size."""
    for name, shape in _tensor_shapes(adapter / "adapter_model.safetensors").items():
        found = LORA.search(name)
        if found is None or found["module"] not in linears:
            raise ValueError(f"tensor {name} is for no linear layer of the base")
        out_features, in_features = linears[found["module"]]
        wanted = [shape[0], in_features] if found["side"] == "A" else [out_features, shape[1]]
        if list(shape) != wanted:
            raise ValueError(f"tensor {name} has shape {list(shape)} where the base needs {wanted}")


def _tensor_shapes(path: Path) -> dict[str, list[int]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  no mapping
