"""Models read and written a tensor at a time: the same bytes' worth as safetensors itself, and what is refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from train.merge.model_files import INDEX, Checkpoint, write_tensors
from train.tensors import Tensors, schema_of


def tensors() -> Tensors:
    random = torch.Generator().manual_seed(0)
    return {
        "w": torch.randn(3, 5, generator=random).half(),
        "scalar": torch.tensor(2.5),
        "steps": torch.arange(4),
        "mask": torch.tensor([True, False, True]),
        "none": torch.zeros(0, 4),
        "low": torch.randn(7, generator=random).bfloat16(),
    }


def test_what_is_written_is_what_safetensors_reads(tmp_path: Path) -> None:
    given = tensors()
    write_tensors(tmp_path / "x.safetensors", schema_of(given), given.items(), {"format": "pt"})
    found = load_file(tmp_path / "x.safetensors")
    assert found.keys() == given.keys()
    for name, tensor in given.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


def test_tensors_are_cast_to_the_schema_and_must_come_in_its_order(tmp_path: Path) -> None:
    schema = {"a": ((2,), torch.float16), "b": ((1,), torch.float32)}
    a, b = torch.tensor([1.5, 2.5], dtype=torch.float64), torch.tensor([3.0])
    write_tensors(tmp_path / "x.safetensors", schema, [("a", a), ("b", b)], {})
    assert load_file(tmp_path / "x.safetensors")["a"].dtype == torch.float16
    with pytest.raises(RuntimeError, match=r"b .* came where a"):
        write_tensors(tmp_path / "y.safetensors", schema, [("b", b), ("a", a)], {})
    with pytest.raises(ValueError, match="shorter"):
        write_tensors(tmp_path / "z.safetensors", schema, [("a", a)], {})


def test_a_checkpoint_is_one_mapping_however_many_files_it_has(tmp_path: Path) -> None:
    given = tensors()
    names = sorted(given)
    parts = {"model-1.safetensors": names[:3], "model-2.safetensors": names[3:]}
    for file, part in parts.items():
        save_file({name: given[name] for name in part}, tmp_path / file, metadata={"format": "pt"})
    save_file({"stale": torch.zeros(1)}, tmp_path / "other.safetensors")
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    sharded = Checkpoint(tmp_path)
    assert sharded.schema == {name: schema_of(given)[name] for name in sharded}
    assert sorted(sharded) == names
    for name, tensor in given.items():
        torch.testing.assert_close(sharded[name], tensor, rtol=0, atol=0)
    assert {sharded.files[name].name for name in parts["model-1.safetensors"]} == {"model-1.safetensors"}
    assert sorted(Checkpoint(tmp_path / "model-1.safetensors")) == parts["model-1.safetensors"]


def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no \.safetensors"):
        Checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")  # never opened
    with pytest.raises(ValueError, match=r"holds no \.safetensors"):
        Checkpoint(tmp_path)
    (tmp_path / "x.safetensors").write_bytes(b"not one")
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        Checkpoint(tmp_path / "x.safetensors")
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"w": "../secret.safetensors"}}))
    with pytest.raises(ValueError, match="no file of its own folder"):
        Checkpoint(tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    for file in ("a.safetensors", "b.safetensors"):
        save_file({"w": torch.zeros(2)}, tmp_path / file)
    with pytest.raises(ValueError, match=r"b\.safetensors: tensor w is in a\.safetensors too"):
        Checkpoint(tmp_path)
