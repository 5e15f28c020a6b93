"""Models on disk as named tensors, read and written one at a time: safetensors alone, in one file or in many.

What is held is one tensor, however large the model: a file's header says where each lies, and a new file's header is
written from the shapes before any tensor is computed.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from train.tensors import Schema

INDEX: Final = "model.safetensors.index.json"
WHOLE: Final = "model.safetensors"
DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Of the names in a safetensors header."""


class Checkpoint(Mapping[str, Tensor]):
    """The tensors of a .safetensors file or of a model's folder, each read when it is asked for.

    In the order of files, in each the widest types first, as safetensors lays them out, then by name. Raises ValueError
    in one sentence where there is no such file, or one cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[Path, dict[str, str]] = {}
        self.files: dict[str, Path] = {}
        self.schema: Schema = {}
        for file in _files(path):
            self._read_header(file)

    def _read_header(self, file: Path) -> None:
        try:
            with safe_open(file, framework="pt") as tensors:
                self.metadata[file] = tensors.metadata() or {"format": "pt"}
                slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118  no mapping
                found = {n: (tuple(s.get_shape()), DTYPES[s.get_dtype()]) for n, s in slices.items()}
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{file}: cannot be read as safetensors ({error})") from None
        except KeyError as error:
            raise ValueError(f"{file}: holds tensors of type {error}, allowed are {', '.join(DTYPES)}") from None
        for name in sorted(found, key=lambda name: (-found[name][1].itemsize, name)):
            if name in self.files:
                raise ValueError(f"{file}: tensor {name} is in {self.files[name].name} too")
            self.files[name], self.schema[name] = file, found[name]

    def __getitem__(self, name: str) -> Tensor:
        # the file is opened anew each time: a mapping that stays open keeps every page that was read in memory
        with safe_open(self.files[name], framework="pt") as tensors:
            tensor: Tensor = tensors.get_tensor(name)
            return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def _files(path: Path) -> list[Path]:
    """A file itself; of a folder those of its index, else its one model.safetensors, else all there are."""
    if path.is_file() and path.suffix == ".safetensors":
        return [path]
    if (path / INDEX).is_file():
        try:
            named = set(json.loads((path / INDEX).read_text())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path / INDEX}: is no index of tensors ({error})") from None
        if outside := sorted(str(name) for name in named if Path(str(name)).name != name):
            raise ValueError(f"{path / INDEX}: names {outside[0]!r}, which is no file of its own folder")
        return sorted(path / name for name in named)
    files = [path / WHOLE] if (path / WHOLE).is_file() else sorted(path.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{path}: holds no .safetensors; a folder with some, or such a file, is needed")
    return files


def write_tensors(
    path: Path, schema: Schema, tensors: Iterable[tuple[str, Tensor]], metadata: Mapping[str, str]
) -> None:
    """A safetensors file of the tensors, which come one by one in the schema's order and are cast to its types."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, (shape, dtype) in schema.items():
        start, end = end, end + torch.Size(shape).numel() * dtype.itemsize
        header[name] = {"dtype": names[dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data is aligned
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for (wanted, (shape, dtype)), (name, tensor) in zip(schema.items(), tensors, strict=True):
            if (name, tuple(tensor.shape)) != (wanted, shape):
                raise RuntimeError(f"{name} {tuple(tensor.shape)} came where {wanted} {shape} was to be written")
            file.write(tensor.detach().to("cpu", dtype).contiguous().flatten().view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())
