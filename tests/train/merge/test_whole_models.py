"""Full checkpoints by every method, against the pure functions on their task vectors; which tensors are merged."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.floats import check_close, rounding
from tests.train.merge.made import merge, small_llavas, text_models
from train.merge.model_files import WHOLE
from train.merging.ataf import fused
from train.merging.dare import dare_streamed
from train.merging.ties import ties_streamed
from train.tensors import Tensors

pytestmark = pytest.mark.numeric

QUERY = "language_model.model.layers.0.self_attn.q_proj.weight"
Stream = Iterator[tuple[str, Tensor]]


def task_vectors(base: Path, models: Sequence[Path]) -> list[Tensors]:
    """By name, in the order of the file."""
    weights = [load_file(folder / WHOLE) for folder in (base, *models)]
    return [{n: w[n].double() - weights[0][n].double() for n in sorted(w)} for w in weights[1:]]


def magnitude(ratio: float, scope: str) -> Callable[[Sequence[Tensors]], Stream]:
    """The mean of the vectors, each without its ⌊ratio · n⌋ smallest entries."""

    def thresholds(vector: Tensors) -> dict[str, float]:
        whole = torch.cat([tensor.abs().flatten() for tensor in vector.values()])
        counted = {n: whole if scope == "global" else tensor.abs().flatten() for n, tensor in vector.items()}
        return {n: float(entries.kthvalue(int(ratio * len(entries))).values) for n, entries in counted.items()}

    def merged(vectors: Sequence[Tensors]) -> Stream:
        cuts = [thresholds(vector) for vector in vectors]
        for name in vectors[0]:
            kept = [v[name] * (v[name].abs() > cut[name]) for v, cut in zip(vectors, cuts, strict=True)]
            yield name, torch.stack(kept).mean(0)

    return merged


def mean(vectors: Sequence[Tensors]) -> Stream:
    return ((n, torch.stack([vector[n] for vector in vectors]).mean(0)) for n in vectors[0])


@pytest.mark.parametrize(
    ("method", "more", "wanted"),
    [
        ("mean", "", mean),
        ("scaled", "--factor 0.5", lambda v: ((n, 0.5 * t) for n, t in mean(v))),
        ("ataf", "--alpha 0.3", lambda v: ((n, fused(v[0][n], v[1][n], 0.3)) for n in v[0])),
        ("ties", "--density .4 --factor .7", lambda v: ((n, 0.7 * t) for n, t in ties_streamed(v, 0.4, "global"))),
        ("ties", "--density .6 --scope tensor", lambda v: ties_streamed(v, 0.6, "tensor")),
        ("dare", "--density .4 --seed 5", lambda v: dare_streamed(v, 5, 0.6)),
        ("magnitude", "--ratio .5", magnitude(0.5, "global")),
        ("magnitude", "--ratio .5 --scope tensor", magnitude(0.5, "tensor")),
    ],
)
def test_a_text_model_is_merged_whole(
    method: str, more: str, wanted: Callable[[Sequence[Tensors]], Stream], tmp_path: Path
) -> None:
    base, *models = text_models(tmp_path)
    assert merge(method, models, tmp_path / "out", *more.split(), base=base) == 0
    before, merged = load_file(base / WHOLE), load_file(tmp_path / "out" / WHOLE)
    expected = dict(wanted(task_vectors(base, models)))
    assert merged.keys() == expected.keys()
    for name, tau in expected.items():
        check_close(merged[name], before[name] + tau, terms=2)


@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_random_masks_are_of_the_ratio_and_each_models_own(scope: str, tmp_path: Path) -> None:
    base, *models = text_models(tmp_path)
    first, second = task_vectors(base, models)
    masks = []
    for name, seed in (("out", "3"), ("again", "3"), ("other", "4")):
        more = ("--ratio", "0.6", "--scope", scope, "--seed", seed)
        assert merge("random", models, tmp_path / name, *more, base=base) == 0
        [merged] = task_vectors(base, [tmp_path / name])
        masks.append([kept(merged[n], first[n], second[n]) for n in merged])
    for client in (0, 1):
        counts = [(int((~both[client]).sum()), both[client].numel()) for both in masks[0]]
        counts = counts if scope == "tensor" else [tuple(map(sum, zip(*counts, strict=True)))]
        assert all(masked == 6 * n // 10 for masked, n in counts)
    whole = [[torch.cat([both[k].flatten() for both in run]) for k in (0, 1)] for run in masks]
    assert not torch.equal(whole[0][0], whole[0][1])
    assert torch.equal(whole[0][0], whole[1][0])
    assert not torch.equal(whole[0][0], whole[2][0])


def kept(merged: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Which entries of either are in the mean of both: it is one of four values."""
    values = torch.stack([torch.zeros_like(first), first / 2, second / 2, (first + second) / 2])
    distance, found = (values - merged).abs().min(0)
    assert float(distance.max()) <= rounding(2) * float(first.abs().max() + second.abs().max())
    return (found == 1) | (found == 3), found >= 2


def test_of_a_llava_in_two_files_ataf_merges_the_language_model_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from_base, other, split = small_llavas(tmp_path)
    assert merge("ataf", [split, other], tmp_path / "out", base=from_base) == 0
    base, second = load_file(from_base / WHOLE), load_file(other / WHOLE)
    first = {n: t for file in split.glob("*.safetensors") for n, t in load_file(file).items()}
    merged = {n: t for file in (tmp_path / "out").glob("*.safetensors") for n, t in load_file(file).items()}
    assert {n: (t.shape, t.dtype) for n, t in merged.items()} == {n: (t.shape, t.dtype) for n, t in first.items()}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in split.iterdir()}
    a, b = (w[QUERY].double() - base[QUERY].double() for w in (first, second))
    torch.testing.assert_close(merged[QUERY], (base[QUERY].double() + fused(a, b, 0.5)).half(), rtol=0, atol=0)
    outside = [name for name in merged if not name.startswith("language_model")]
    assert all(torch.equal(merged[name], first[name]) for name in outside)
    assert len(outside) > 15
    assert f"the other {len(outside)} tensors are those of {split}" in capsys.readouterr().out
