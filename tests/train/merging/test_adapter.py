"""Adapters from and to PEFT's tensors, and what is refused before merging."""

import pytest
import torch

from tests.train.merging.drawn import SHAPES, adapter
from train.lowrank import Factors
from train.merging.adapter import deltas, of_one_rank, read_adapter, together, write_adapter

pytestmark = pytest.mark.numeric


def test_a_file_comes_back_with_its_scale_folded_in() -> None:
    tensors = write_adapter(adapter(0))
    assert set(tensors) == {f"{module}.lora_{side}.weight" for module in SHAPES for side in "AB"}
    assert all(tensor.dtype == torch.float32 for tensor in tensors.values())
    for module, (b, a) in read_adapter(tensors, 2.0).items():
        torch.testing.assert_close(b, 2 * tensors[f"{module}.lora_B.weight"], rtol=0, atol=0)
        torch.testing.assert_close(a, tensors[f"{module}.lora_A.weight"], rtol=0, atol=0)


def test_half_precision_files_are_read_in_float32() -> None:
    halves = {name: tensor.half() for name, tensor in write_adapter(adapter(0)).items()}
    assert {part.dtype for factors in read_adapter(halves, 1.0).values() for part in factors} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("block.lora_embedding_A", (2, 3), "block.lora_embedding_A: not a LoRA factor"),
        ("block.lora_A.weight", (2, 3), "block.lora_A.weight: its partner block.lora_B.weight is missing."),
        ("block.2.attn.lora_B.weight", (4, 3), r"block.2.attn: B \(4, 3\) and A \(2, 9\) are not"),
    ],
)
def test_what_is_no_lora_is_refused(name: str, shape: tuple[int, int], reason: str) -> None:
    tensors = write_adapter(adapter(0)) | {name: torch.zeros(shape)}
    with pytest.raises(ValueError, match=reason):
        read_adapter(tensors, 1.0)


def test_modules_come_in_the_order_of_the_files_names() -> None:
    tensors = write_adapter(adapter(0))
    names = [module for module, _ in together([adapter(0)])]
    assert [f"{module}.lora_{side}.weight" for module in names for side in "AB"] == sorted(tensors)


def test_products_are_formed_on_demand() -> None:
    first, second = deltas([adapter(0), adapter(1, rank=3)])
    assert list(first) == list(second)
    assert len(first) == len(SHAPES)
    for module, (b, a) in adapter(1, rank=3).items():
        torch.testing.assert_close(second[module], b @ a, rtol=0, atol=0)


def changed(module: str, factors: Factors) -> dict[str, Factors]:
    return adapter(1) | {module: factors}


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (changed("new", (torch.ones(2, 2), torch.ones(2, 2))), "^new: adapter 2 has this module, adapter 1 does not"),
        ({"block.2.attn": adapter(1)["block.2.attn"]}, "^block.10.attn: adapter 1 has this module, adapter 2 does not"),
        (
            changed("block.2.attn", (torch.ones(4, 2), torch.ones(2, 8))),
            "^block.2.attn: adapter 2 is for 4 × 8, adapter 1 for 4 × 9.$",
        ),
        (
            changed("block.2.attn", (torch.full((4, 2), torch.nan), torch.ones(2, 9))),
            "^block.2.attn: adapter 2 holds a value that is not finite.$",
        ),
    ],
)
def test_adapters_that_do_not_fit_are_refused(other: dict[str, Factors], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(together([adapter(0), other]))
    with pytest.raises(ValueError, match=reason):
        deltas([adapter(0), other])


def test_none_and_unequal_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^adapters: none given"):
        list(together([]))
    with pytest.raises(ValueError, match=r"^block\.10\.attn: adapter 2 has rank 3, adapter 1 2; it must be one\.$"):
        list(of_one_rank([adapter(0), adapter(1, rank=3)]))
