"""The benchmark of served connectors: what it computes, counts and concludes."""

import asyncio
import json
import time
from pathlib import Path

import pytest
import torch

from adapters_store.paths import PROJECT_ROOT
from adapters_store.personal.connector import read_connector
from adapters_store.store import Store
from bench.connector_study import batches, load, versions
from bench.connectors import BASE, main, markdown
from serve.chat.connector_batch import FrozenByDigest, batched
from tests.floats import check_close
from tests.serve.artefacts import CONNECTOR_TERMS

CPU = torch.device("cpu")


@pytest.mark.numeric
def test_both_ways_to_compute_a_batch_compute_the_same() -> None:
    size, held = versions.widths(BASE), FrozenByDigest()
    ready = [batched(read_connector(versions.connector_tensors(k, size)), held, CPU) for k in range(3)]
    assert len(held) == versions.TASKS  # what the clients received of the tasks, each held once
    features = torch.randn(3, 2, 8, size.vision, generator=torch.Generator().manual_seed(0))
    check_close(batches.bmm(ready, features), batches.loop(ready, features), CONNECTOR_TERMS)


def test_its_versions_are_sound_and_its_base_never_ends_an_answer(tmp_path: Path) -> None:
    store, base = Store(tmp_path / "store"), versions.endless(BASE, tmp_path / "base")
    folders = versions.publish(store, base, load.CLIENTS[:2])
    for name, folder in folders.items():
        assert store.verify(*name.split("@")).path.resolve() == folder
    said = json.loads((base / "tokenizer_config.json").read_text())
    assert said["eos_token"] == said["pad_token"]
    assert "</s>" in (PROJECT_ROOT / "bases/tiny/llava/tokenizer_config.json").read_text()


def test_a_window_counts_what_ends_in_it() -> None:
    class Side:
        """Answers after a hundredth of a second and a millisecond's work, c0 always with 16 tokens."""

        async def ask(self, client: str) -> int:
            await asyncio.sleep(0.01)
            until = time.process_time() + 0.001
            while time.process_time() < until:
                pass
            return 16 if client == "c0" else 7

    window = asyncio.run(load.play(Side(), ["c0", "c0", "c1"], 0.3))
    assert window.lengths == {16, 7}
    assert 20 < window.rate <= 300
    assert window.processor_seconds > 0.0005


def test_the_conclusion_is_what_mixing_costs_beyond_the_engines_own() -> None:
    def windows(*figures: tuple[float, float]) -> list[load.Window]:
        return [load.Window(rate, seconds, frozenset({16})) for rate, seconds in figures]

    seen = {
        "gateway": {
            "one": windows((19, 0.1), (21, 0.1), (10, 0.1), (10, 0.1)),
            "mixed": windows((17, 0.11), (15, 0.11), (8, 0.12), (8, 0.12)),
        },
        "engine": {
            "one": windows(*[(40, 0.1)] * 4),
            "mixed": windows((34, 0.1), (34, 0.1), (36, 0.1), (36, 0.1)),
        },
    }
    spent = [{"features": 2.0, "connectors": 1.0, "answers": 30.0, "count": 10.0}]
    found = load.summarise(seen, spent)
    lost = {
        by: {who: of["mean"] for who, of in by_side.items()} for by, by_side in found["points_lost_by_mixing"].items()
    }
    assert lost["throughput"] == pytest.approx({"gateway": 20, "engine": 12.5, "gateway's own": 7.5})
    assert lost["processor"] == pytest.approx({"gateway": 15, "engine": 0, "gateway's own": 15})
    assert found["points_lost_by_mixing"]["throughput"]["gateway"]["interval"] == pytest.approx((20, 20))
    assert found["share"] == pytest.approx({"features": 2 / 30, "connectors": 1 / 30})
    assert found["seconds_of_an_answer"]["answers"] == 3
    table = markdown({"answers": found, "batches": {"mixing_cost": {"8": 0.02, "16": -0.01}}})
    assert "| 10.0 % | < 15 % |" in table
    assert "| -2.0 % | > −10 % |" in table
    assert "answers a second that mixing 8 clients costs: gateway's own | +7.5 [" in table


@pytest.mark.accept
def test_the_command_writes_results_and_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--out", str(tmp_path), "--repetitions", "1", "--seconds", "2", "--answer-tokens", "4"])
    found = json.loads((tmp_path / "connectors.json").read_text())
    assert found["answers"]["answer_tokens"] == [4]
    assert found["machine"]["vllm"]
    assert "mixing 8 clients costs: gateway's own" in capsys.readouterr().out
