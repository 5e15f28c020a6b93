"""CIFAR's Python version made into the binary one, without trusting its pickles.

A pickle may name any function and have it called. The one unpickler of this project calls nothing outside this file:
for the few names that arrays and bytes need, it uses stand-ins that only keep what they are given; every other name is
refused before anything happens.
"""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.data.readers.cifar import FORMS, PIXELS

LABELS: Final = {"cifar10": ("labels",), "cifar100": ("coarse_labels", "fine_labels")}
NAMES: Final = {
    "cifar10": ("batches.meta", {"label_names": "batches.meta.txt"}),
    "cifar100": (
        "meta",
        {"fine_label_names": "fine_label_names.txt", "coarse_label_names": "coarse_label_names.txt"},
    ),
}


class _Element:
    """Stands in for ``numpy.dtype``: keeps the code of the element type."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like: of no account for single bytes."""


class _Array:
    """Stands in for ``numpy.ndarray`` and its maker: keeps shape, element type, order and bytes."""

    shape: Any = None
    element: Any = None
    columns_first: Any = False
    content: Any = None

    def __init__(self, *_: Any) -> None:
        """The real shape comes with the state."""

    def __setstate__(self, state: Any) -> None:
        _, self.shape, self.element, self.columns_first, self.content = state

    def images(self) -> NDArray[np.uint8]:
        """(n, 3072) of what was kept; ValueError where it is anything else."""
        if not isinstance(self.element, _Element) or self.element.code not in ("u1", "|u1"):
            raise ValueError("its images are not bytes")
        rows: NDArray[np.uint8] = np.frombuffer(self.content, dtype=np.uint8)
        if self.shape != (rows.size // PIXELS, PIXELS):
            raise ValueError(f"its images have the shape {self.shape}, allowed is (images, {PIXELS})")
        return rows.reshape(self.shape, order="F" if self.columns_first else "C")


def _encode(text: str, encoding: str) -> bytes:
    """Stands in for ``_codecs.encode``, by which Python 3 writes bytes for Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the encoding {encoding!r}")
    return text.encode("latin1")


STAND_INS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Element,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return STAND_INS[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}") from None


def convert_cifar(source: Path, out: Path) -> None:
    """Writes the binary version of ``source`` (cifar-10-batches-py or cifar-100-python) into the new folder ``out``.

    ValueError with one sentence where a file is missing, malformed, or a pickle that wants more than arrays.
    """
    if out.exists() and (out.is_file() or any(out.iterdir())):
        raise ValueError(f"OUT: {out} is already there; name a new folder")
    found = [name for name, (meta, _) in NAMES.items() if (source / meta).is_file()]
    if not found:
        raise ValueError(f"IN: found {source}, expected in it is batches.meta (CIFAR-10) or meta (CIFAR-100)")
    name = found[0]
    form, (meta, texts) = FORMS[name], NAMES[name]
    files = {target: _binary(source / Path(target).stem, LABELS[name]) for target in (*form.train, *form.test)}
    content = _load(source / meta)
    for key, target in texts.items():
        files[target] = "".join(f"{_text(line)}\n" for line in _needed(content, key, source / meta)).encode()
    out.mkdir(parents=True, exist_ok=True)
    for target, data in files.items():
        (out / target).write_bytes(data)


def _load(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle, its keys as text."""
    if not path.is_file():
        raise ValueError(f"IN: {path} is missing")
    try:
        content = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        return {_text(key): value for key, value in content.items()}
    except Exception as error:  # a malformed pickle fails in any way it likes
        raise ValueError(f"IN: {path} is refused as a pickle of arrays: {error}") from None


def _binary(path: Path, labels: tuple[str, ...]) -> bytes:
    """A batch as records of label bytes and pixels."""
    content = _load(path)
    data = _needed(content, "data", path)
    try:
        columns = [np.array(_needed(content, key, path), dtype=np.uint8)[:, None] for key in labels]
        return np.hstack([*columns, data.images()]).tobytes()
    except (AttributeError, TypeError, ValueError, OverflowError, IndexError) as error:
        raise ValueError(f"IN: {path} is refused: {error}") from None


def _needed(content: dict[str, Any], key: str, path: Path) -> Any:
    if key not in content:
        raise ValueError(f"IN: {path} has no {key!r}")
    return content[key]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
