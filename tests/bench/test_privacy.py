"""The benchmark of accuracy against ε: one federation of it, and what is made of outcomes."""

import json
import math
from pathlib import Path

import pytest

from bench.privacy import noise_of
from bench.privacy_study import show
from bench.privacy_study.federations import Job, Outcome, play


def outcome(method: str, epsilon: float, seed: int, accuracy: float) -> Outcome:
    job = Job("scenes_colour", method, epsilon, seed, 0.1)
    spent = [epsilon if job.private else None]
    return Outcome(job, accuracy, accuracy - 0.1, 0.5, spent, spent, 1.0)


def test_a_row_holds_mean_deviation_and_every_seed(tmp_path: Path) -> None:
    found = [outcome("promptfl", e, seed, 0.6 + seed / 10) for e in (1.0, math.inf) for seed in (0, 1)]
    rows = show.summarise(found)
    assert [row["epsilon"] for row in rows] == [1.0, None]
    assert rows[0]["mean"]["seeds"] == [0.6, 0.7]
    assert rows[0]["mean"]["mean"] == pytest.approx(0.65)
    assert rows[0]["mean"]["std"] == pytest.approx(0.0707, abs=1e-4)
    json.dumps(rows, allow_nan=False)
    lines = show.markdown(rows).splitlines()
    assert lines[0].endswith("| zero-shot | ε = 1 | plain |")
    assert lines[2].endswith("| 50.0 ± 0.0 | 65.0 ± 7.1 / 55.0 ± 7.1 | 65.0 ± 7.1 / 55.0 ± 7.1 |")
    show.draw(rows, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_how_much_noise_a_rate_was_chosen_at() -> None:
    assert [noise_of(epsilon) for epsilon in (1.0, 2.0, 4.0, 8.0, math.inf)] == ["much"] * 2 + ["little"] * 2 + ["none"]


@pytest.mark.accept
def test_a_private_federation_spends_what_it_may(tmp_path: Path) -> None:
    found = play(Job("digits_dirichlet", "promptfl", 8.0, 0, 0.1))
    assert all(spent is not None and 7.9 < spent <= 8.0 for spent in found.spent)
    assert 0 < found.worst <= found.mean <= 1
