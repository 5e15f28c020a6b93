"""A LoRA adapter as merging sees it: the factors (B, A) of every module, from and to the tensors of PEFT's file."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from train.lowrank import Factors, product_norm
from train.tensors import Tensors

Adapter = Mapping[str, Factors]
"""Module name, as in PEFT's file without ``.lora_A.weight`` → (B (d_out, r), A (r, d_in)), ΔW = BA."""

A, B = ".lora_A.weight", ".lora_B.weight"
T = TypeVar("T")


class Recompressed(dict[str, Factors]):
    """An adapter cut to a rank; ``errors`` holds ‖B̂Â − ΔW‖_F / ‖ΔW‖_F for every module."""

    def __init__(self, modules: Iterable[tuple[str, tuple[Factors, float]]]) -> None:
        super().__init__()
        self.errors: dict[str, float] = {}
        for module, (factors, error) in modules:
            self[module], self.errors[module] = factors, error

    @property
    def error(self) -> float:
        """The same over all modules together: a best approximation stands at right angles to what it leaves out."""
        kept = {module: product_norm(*factors) ** 2 for module, factors in self.items()}
        whole = {module: kept[module] / (1 - error**2) if error < 1 else 0.0 for module, error in self.errors.items()}
        total = sum(whole.values())
        return math.sqrt((total - sum(kept.values())) / total) if total > sum(kept.values()) else 0.0


class Computed(Mapping[str, T]):
    """A mapping whose values are computed when they are asked for, so that one dense tensor is alive at a time."""

    def __init__(self, names: Sequence[str], compute: Callable[[str], T]) -> None:
        self.names, self.compute = names, compute

    def __getitem__(self, name: str) -> T:
        return self.compute(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names  # Mapping's own would compute the value

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def read_adapter(tensors: Mapping[str, Tensor], scale: float) -> dict[str, Factors]:
    """The factors in a PEFT file's tensors, modules in the file's name order, ``scale`` (α/r) folded into B.

    In the file's precision, at least float32: every function on adapters computes in float64, a module at a time.
    Raises ValueError naming a tensor that is no LoRA factor, has no partner or does not fit it.
    """
    for name in tensors:
        if not name.endswith((A, B)):
            raise ValueError(f"{name}: not a LoRA factor, which end in {A} or {B}.")
        partner = name.removesuffix(A) + B if name.endswith(A) else name.removesuffix(B) + A
        if partner not in tensors:
            raise ValueError(f"{name}: its partner {partner} is missing.")
    adapter: dict[str, Factors] = {}
    for module in in_file_order({name.removesuffix(A) for name in tensors if name.endswith(A)}):
        b, a = (tensors[module + end] for end in (B, A))
        if b.ndim != 2 or a.ndim != 2 or b.shape[1] != a.shape[0]:
            raise ValueError(f"{module}: B {tuple(b.shape)} and A {tuple(a.shape)} are not (d_out, r) and (r, d_in).")
        dtype = torch.promote_types(b.dtype, torch.float32)
        adapter[module] = (scale * b.to(torch.float64)).to(dtype), a.to(dtype)
    return adapter


def write_adapter(adapter: Adapter) -> Tensors:
    """The tensors of a PEFT file of scale 1 (lora_alpha = r), in float32."""
    tensors: Tensors = {}
    for module, (b, a) in adapter.items():
        tensors |= {module + A: a.to(torch.float32).contiguous(), module + B: b.to(torch.float32).contiguous()}
    return tensors


def in_file_order(modules: Iterable[str]) -> list[str]:
    """Module names in the order in which their tensors' names sort."""
    return sorted(modules, key=lambda module: module + A)


def together(adapters: Sequence[Adapter]) -> Iterator[tuple[str, list[Factors]]]:
    """Module by module, in file order, every adapter's factors in float64; ranks may differ.

    Raises ValueError in one sentence that names the module which one adapter lacks, whose shape differs, or which
    holds a value that is not finite.
    """
    if not adapters:
        raise ValueError("adapters: none given, at least one is needed.")
    for number, adapter in enumerate(adapters[1:], start=2):
        for module in in_file_order(adapter.keys() ^ adapters[0].keys()):
            owner, other = (number, 1) if module in adapter else (1, number)
            raise ValueError(f"{module}: adapter {owner} has this module, adapter {other} does not.")
    for module in in_file_order(adapters[0]):
        yield module, _checked(module, [adapter[module] for adapter in adapters])


def of_one_rank(adapters: Sequence[Adapter]) -> Iterator[tuple[str, list[Factors]]]:
    """The same, for methods that combine the factors entry by entry: refuses ranks that differ."""
    for module, factors in together(adapters):
        for number, (b, _) in enumerate(factors, start=1):
            if b.shape[1] != (rank := factors[0][0].shape[1]):
                raise ValueError(f"{module}: adapter {number} has rank {b.shape[1]}, adapter 1 {rank}; it must be one.")
        yield module, factors


def deltas(adapters: Sequence[Adapter]) -> list[Mapping[str, Tensor]]:
    """For every adapter its ΔW = BA (d_out, d_in) by module, formed in float64 when asked for; checks as above."""
    names = [module for module, _ in together(adapters)]
    return [Computed(names, _product_of(adapter)) for adapter in adapters]


def _product_of(adapter: Adapter) -> Callable[[str], Tensor]:
    def product(module: str) -> Tensor:
        b, a = adapter[module]
        return b.to(torch.float64) @ a.to(torch.float64)

    return product


def _checked(module: str, factors: list[Factors]) -> list[Factors]:
    b_first, a_first = factors[0]
    shape = b_first.shape[0], a_first.shape[1]
    for number, (b, a) in enumerate(factors, start=1):
        if (b.shape[0], a.shape[1]) != shape:
            found = f"{b.shape[0]} × {a.shape[1]}"
            raise ValueError(f"{module}: adapter {number} is for {found}, adapter 1 for {shape[0]} × {shape[1]}.")
        if not (bool(b.isfinite().all()) and bool(a.isfinite().all())):
            raise ValueError(f"{module}: adapter {number} holds a value that is not finite.")
    return [(b.to(torch.float64), a.to(torch.float64)) for b, a in factors]
