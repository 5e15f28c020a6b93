"""Adapters by every method, against the pure functions at settings under which each does something."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from tests.floats import check_close
from tests.train.merge.made import delta, drawn_lora, merge
from train.lowrank import dense_recompressed
from train.merge.adapter_files import AdapterFile
from train.merging.adapter import Adapter, Recompressed
from train.merging.ataf import ataf
from train.merging.dare import dare
from train.merging.knots import knots
from train.merging.means import exact_mean, factor_mean, recompress, scaled_mean
from train.merging.pruning import (
    Rescale,
    delta_magnitude_saliency,
    delta_random_saliency,
    magnitude_saliency,
    prune,
    pruned_deltas,
    random_saliency,
)
from train.merging.robust import robust_merge
from train.merging.selection import Scope
from train.merging.ties import ties
from train.tensors import derive_seed

pytestmark = pytest.mark.numeric

FACTORS = 9  # additions in a product of factors: no layer is wider
Method = Callable[[Sequence[Adapter]], Adapter]


def seed_of(client: int) -> int:
    return derive_seed(7, "adapter", client)


def magnitude(ratio: float, scope: Scope, rescale: Rescale) -> Method:
    return lambda adapters: exact_mean([prune(a, magnitude_saliency(a), ratio, scope, rescale) for a in adapters])


def drawn(ratio: float, scope: Scope, rescale: Rescale) -> Method:
    return lambda adapters: exact_mean(
        [prune(a, random_saliency(a, seed_of(k)), ratio, scope, rescale) for k, a in enumerate(adapters)]
    )


def of_products(kind: str, ratio: float, scope: Scope, rescale: Rescale, rank: int) -> Method:
    """The same of the products, recompressed."""

    def merged(adapters: Sequence[Adapter]) -> Adapter:
        every = []
        for k, a in enumerate(adapters):
            scores = delta_magnitude_saliency(a) if kind == "magnitude" else delta_random_saliency(a, seed_of(k))
            every.append(dict(pruned_deltas(a, scores, ratio, scope, rescale)))
        return Recompressed(
            (module, dense_recompressed(torch.stack([one[module] for one in every]).mean(0), rank))
            for module in every[0]
        )

    return merged


CASES: dict[str, Method] = {
    "mean": exact_mean,
    "mean --rank 2": lambda adapters: recompress(exact_mean(adapters), 2),
    "scaled --factor .4": lambda adapters: scaled_mean(adapters, 0.4),
    "factor_mean": factor_mean,
    "ataf --alpha .3": lambda adapters: ataf(adapters[0], adapters[1], 0.3),
    "ties --density .4 --factor .7": lambda adapters: ties(adapters, rank=4, density=0.4, scale=0.7),
    "ties --density .6 --scope tensor": lambda adapters: ties(adapters, rank=4, density=0.6, scope="tensor"),
    "dare --density .4 --seed 5": lambda adapters: dare(adapters, rank=4, seed=5, drop=0.6),
    "knots --density .4 --factor .7": lambda adapters: knots(adapters, density=0.4, scale=0.7),
    "knots --density .6 --scope tensor": lambda adapters: knots(adapters, density=0.6, scope="tensor"),
    "robust --density .4 --factor 1.5": lambda adapters: robust_merge(adapters, density=0.4, scale=1.5),
    "magnitude --ratio .6 --rescale norm": magnitude(0.6, "global", "norm"),
    "magnitude --ratio .5 --rescale robust --scope tensor": magnitude(0.5, "tensor", "robust"),
    "magnitude --ratio .6 --space delta --rank 3": of_products("magnitude", 0.6, "global", "none", 3),
    "magnitude --ratio .6 --space delta --rescale norm --scope tensor": of_products(
        "magnitude", 0.6, "tensor", "norm", 4
    ),
    "random --ratio .6 --seed 7": drawn(0.6, "global", "none"),
    "random --ratio .6 --seed 7 --scope tensor --rescale norm": drawn(0.6, "tensor", "norm"),
    "random --ratio .6 --seed 7 --space delta --rescale robust": of_products("random", 0.6, "global", "robust", 4),
}


@pytest.mark.parametrize("case", CASES)
def test_a_merge_on_the_command_line_is_the_pure_functions(case: str, tmp_path: Path) -> None:
    loras = [drawn_lora(tmp_path / str(seed), seed, 2) for seed in (1, 2)]
    method, *more = case.split()
    assert merge(method, [folder for folder, _ in loras], tmp_path / "out", *more) == 0
    merged, expected = AdapterFile(tmp_path / "out"), CASES[case]([factors for _, factors in loras])
    assert merged.names == list(expected)
    for module, (b, a) in expected.items():
        assert len(merged[module][1]) == len(a)
        check_close(delta(merged, module), b.double() @ a.double(), FACTORS)


def test_ranks_that_differ_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loras = [drawn_lora(tmp_path / str(rank), rank, rank) for rank in (2, 3)]
    folders = [folder for folder, _ in loras]
    assert merge("mean", folders, tmp_path / "out") == 0
    assert "3 modules of rank 5" in capsys.readouterr().out
    merged = AdapterFile(tmp_path / "out")
    for module, (b, a) in exact_mean([factors for _, factors in loras]).items():
        check_close(delta(merged, module), b @ a, FACTORS)
    assert merge("mean", folders, tmp_path / "rank-1", "--rank", "1", "--dtype", "bfloat16") == 0
    assert AdapterFile(tmp_path / "rank-1").rank == 1
    assert {dtype for _, dtype in AdapterFile(tmp_path / "rank-1").tensors.schema.values()} == {torch.bfloat16}
    assert "relative error of rank 1: " in capsys.readouterr().out
    assert merge("factor_mean", folders, tmp_path / "none") == 2
    assert "adapter 2 has rank 3, adapter 1 2" in capsys.readouterr().err
