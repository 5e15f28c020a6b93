"""Pilot's study: what is played and what the figures mean."""

from typing import Any

import pytest

from bench.pilot_study.runs import VARIANTS, Job, config, steps_of_an_exchange
from bench.pilot_study.summary import WHERE, by_task, markdown, scores, summarise
from train.run.config import RunConfig


@pytest.mark.parametrize("method", VARIANTS)
def test_every_row_is_a_valid_configuration_of_as_many_steps(method: str) -> None:
    """Pilot's first round has one exchange more than FedIT's; personal steps make up for it."""
    values = config(Job(method, 1e-3, 0, "test"))
    found = RunConfig.model_validate(values)
    exchanges = found.federation.rounds + (found.method.name == "pilot")
    steps = exchanges * steps_of_an_exchange(values) + found.client.personal_steps
    assert steps == 4 * steps_of_an_exchange(values)


def results(own: float, unseen: float) -> dict[str, Any]:
    """A run of two clients, the second of which has no unseen task."""
    both: dict[str, Any] = {"style": {"personal": unseen}, "task": {"personal": unseen}}
    clients = [{"personal": own, "unseen": both}, {"personal": own / 2, "unseen": {"style": {"personal": 0.0}}}]
    return {"clients": clients, "tasks": {"count": {"personal": own}}}


def test_means_and_differences_are_those_of_the_clients_that_have_the_questions() -> None:
    runs = [results(0.8, 0.4), results(0.6, 0.2)]
    assert scores(runs[0], "personal", "task") == [0.4]
    rows = {"ours": ("personal", runs), "theirs": ("personal", [results(0.4, 0.4), results(0.2, 0.2)])}
    found = summarise(rows, ("theirs",))
    assert found["ours"]["seen"]["mean"]["seeds"] == pytest.approx([0.6, 0.45])
    assert found["ours"]["seen"]["worst"]["mean"] == pytest.approx(0.35)
    assert found["ours"]["seen"]["minus"]["theirs"]["mean"] == pytest.approx((0.4 + 0.2) / 2)
    assert found["ours"]["task"]["minus"]["theirs"]["mean"] == pytest.approx(0)
    assert set(found["ours"]) == set(WHERE)
    table = markdown(found, by_task(rows), ("theirs",))
    assert "| ours | 52.5 ± 10.6 | 35.0 ± 7.1 | 15.0 ± 7.1 | 0.0 ± 0.0 | 30.0 ± 14.1 | 30.0 ± 14.1 |" in table
    assert "| ours | +30.0 [+30.0, +30.0] |" in table
