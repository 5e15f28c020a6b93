"""The figures of growing federations add up."""

import pytest

from bench.prompt_study.scale import measure


def test_a_rounds_parts_and_bytes() -> None:
    few, more = (measure(clients, 2, 2, local_epochs=1) for clients in (3, 5))
    for one in (few, more):
        seconds = one["seconds"]
        assert seconds["round"] == pytest.approx(sum(seconds[p] for p in ("clients", "selection", "commit", "rest")))
        assert min(seconds.values()) > 0
        assert list(one["peak_memory_mib"].values()) == sorted(one["peak_memory_mib"].values())
    prompt = 16 * 128 * 4
    assert few["bytes_up"] == more["bytes_up"] == pytest.approx(prompt, rel=0.05)
    assert few["bytes_down"] == pytest.approx(3 * prompt, rel=0.05)  # the mean prompt, and those of the two others
    assert more["bytes_down"] == pytest.approx(5 * prompt, rel=0.05)
    assert more["server_state_mib"] > few["server_state_mib"]
