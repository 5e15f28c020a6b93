"""The study of merges: its poisoned client, its choices, its figures."""

from collections.abc import Mapping

import pytest

from bench.merging_study import summary, tuning
from bench.merging_study.clients import STYLES, Training, config, mislabelled
from bench.merging_study.ways import BASELINES, Clients, masked_at_random, of_norm, size
from tests.train.merging.drawn import adapter
from tests.train.small import config as small
from train.data import build
from train.merging.means import exact_mean


def test_a_poisoned_clients_labels_are_all_wrong_and_as_consistent_as_before() -> None:
    client = build(small("sap").data, 0)[0]
    wrong = mislabelled(client.train, client.class_names, 0)
    names: dict[str, set[str]] = {}
    for before, after in zip(client.train, wrong, strict=True):
        assert after.answer != before.answer
        assert client.class_names[after.label] == after.answer
        names.setdefault(before.answer, set()).add(after.answer)
    assert all(len(said) == 1 for said in names.values())
    assert len({said for of in names.values() for said in of}) == len(names)


def test_every_style_is_a_client() -> None:
    assert config(Training(0, 1e-3)).data.styles == STYLES
    assert config(Training(0, 1e-3)).data.clients == len(STYLES)


def test_what_a_left_out_style_is_given_was_chosen_on_the_others() -> None:
    plain = {name: {"1": 0.5, "2": 0.4} for name in BASELINES}
    scores = {style: {**plain, "anchored": {"0.05/1": 0.5, "0.15/1.3": 0.4}} for style in STYLES}
    scores["night"] = {**{name: {"1": 0.0, "2": 9.0} for name in BASELINES}, "anchored": {"0.05/1": 0, "0.15/1.3": 9}}
    assert tuning.chosen(scores, "night").factors == dict.fromkeys(BASELINES, 1.0)
    assert tuning.chosen(scores, "night").anchored_lr == 0.05
    assert tuning.chosen(scores, "sketch").factors == dict.fromkeys(BASELINES, 2.0)
    sketch = tuning.chosen(scores, "sketch")
    assert (sketch.anchored_lr, sketch.anchored_gain) == (0.15, 1.3)


def test_controls_have_the_norm_of_what_they_stand_beside() -> None:
    clients = Clients([adapter(seed) for seed in range(3)], 0)
    for control in (exact_mean(clients.adapters), masked_at_random(0.5)(clients)):
        assert size(of_norm(control, 0.7)) == pytest.approx(0.7)
    assert clients.rank == 6


def test_differences_are_paired_by_seed_and_style() -> None:
    names = {name for pair in summary.COMPARED.items() for name in (pair[0], *pair[1])}

    def cell(seed: int, place: int) -> Mapping[str, Mapping[str, float]]:
        base = 0.3 + 0.1 * seed + 0.01 * place
        rows = {name: {"unseen": base, "seen": base, "norm": 1.0} for name in names}
        rows["anchored"] = {"unseen": base + 0.02, "seen": base + 0.05, "norm": 2.0}
        if seed == 0:
            rows["for one seed"] = {"unseen": 0.25, "norm": 1.0}
        return rows | {"alone: a": {"unseen": 0.1, "norm": 1.0}, "alone: b": {"unseen": 0.2, "norm": 1.0}}

    cells = {seed: {style: cell(seed, place) for place, style in enumerate(STYLES)} for seed in (0, 1)}
    found = summary.summarise(cells)
    over = found["minus"]["anchored"]["SAP .95"]
    assert over["unseen"]["mean"] == pytest.approx(0.02)
    assert over["unseen"]["seeds"] == pytest.approx((0.02, 0.02))
    assert (over["seen"]["better"], over["seen"]["worse"]) == (16, 0)
    assert found["rows"]["anchored"]["unseen"]["mean"] == pytest.approx(0.405)
    assert found["rows"]["for one seed"]["unseen"]["seeds"] == [0.25]
    assert found["rows"]["clients alone, best"]["unseen"]["mean"] == pytest.approx(0.2)
    assert found["rows"]["clients alone, mean"]["unseen"]["mean"] == pytest.approx(0.15)
    table = summary.markdown(found)
    assert "| anchored | 40.5 ± 7.1 | 43.5 ± 7.1 | 2.00 |" in table
    assert "| anchored − SAP .95 | +2.0 [+2.0, +2.0] | 16 / 0 | +5.0 [+5.0, +5.0] | 16 / 0 |" in table
