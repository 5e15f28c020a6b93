"""The accuracy study: what is played, what is chosen, what the table says."""

import json
from pathlib import Path

import pytest

from bench.prompt_study import table, tuning
from bench.prompt_study.accuracy import Job, Result, play
from bench.prompt_study.settings import ABLATIONS, COMPARED, SETTINGS, run_config
from bench.prompts import main

QUICK = {"few_shot": 1, "val_per_client": 4, "test_per_client": 8}


def test_every_row_of_the_table_is_a_valid_configuration() -> None:
    for job in table.jobs(list(SETTINGS), [0], {}, {}, {}):
        setting = SETTINGS[job.setting]
        found = [run_config(setting.config, 0, row.method, data=dict(setting.data)).method for row in job.rows]
        assert len({one.model_dump_json() for one in found}) == len(COMPARED) + len(ABLATIONS)
        assert len({one.prompt.model_dump_json() for one in found}) == 1  # type: ignore[union-attr]


def test_tuned_rates_reach_the_methods_they_were_chosen_for() -> None:
    tuned = {"digits_2": {"coop": {"lr": 0.03}, "pfedmoap": {"lr": 0.3, "gate_lr": 0.05}}}
    rows = {row.name: row for row in table.jobs(["digits_2"], [0], tuned, {}, {})[0].rows}
    assert rows["coop"].client == {"lr": 0.03}
    assert rows["promptfl"].client == {}  # the configuration's
    assert rows["λ = 0"].client == {"lr": 0.3}
    assert rows["λ = 0"].method == {"name": "pfedmoap", "gate_lr": 0.05, "mixing": 0.0}


def test_a_job_scores_every_client_by_every_method() -> None:
    rows = [tuning.row(name, name, {}) for name in ("coop", "pfedmoap")]
    found = play(Job("digits_2", 0, rows, "test", QUICK, {"rounds": 2}))
    assert list(found.accuracy) == ["coop", "zero-shot", "pfedmoap"]
    assert all(len(clients) == 5 for clients in found.accuracy.values())
    assert found.cost["coop"]["bytes_up"] == 0 < found.cost["pfedmoap"]["bytes_up"]
    again = play(Job("digits_2", 0, rows[1:], "test", QUICK, {"rounds": 2}))
    assert again.accuracy["pfedmoap"] == found.accuracy["pfedmoap"]  # whatever ran before it on the same base


def test_the_best_rate_on_validation_data_is_chosen_and_of_equals_the_smallest() -> None:
    names = [tuning.spell(method, rates) for method in COMPARED for rates in tuning.candidates(method)]
    score = {"coop lr=0.03": 0.9, "coop lr=0.1": 0.9, "pfedmoap lr=0.1 gate_lr=0.05": 0.8}
    accuracy = {name: {"client-00": score.get(name, 0.5)} for name in names}
    chosen = tuning.choose([Result("digits_2", 10, accuracy, {})])["chosen"]["digits_2"]
    assert chosen["coop"] == {"lr": 0.03}
    assert chosen["pfedmoap"] == {"lr": 0.1, "gate_lr": 0.05}
    assert chosen["promptfl"] == {"lr": tuning.RATES[0]}


def test_the_command_writes_results_and_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shrink = ["--quick", "--settings", "digits_2", "--processes", "1", "--out", str(tmp_path)]
    main(["table", *shrink, "--seeds", "0", "1"])
    results = json.loads((tmp_path / "prompts_table.json").read_text())
    assert results["machine"]["torch"]
    rows = results["settings"]["digits_2"]["rows"]
    assert set(rows) == {"zero-shot", *COMPARED, *ABLATIONS}
    assert len(rows["pfedmoap"]["minus"]["coop"]["seeds"]) == 2
    assert (tmp_path / "prompts_table.md").read_text().strip() in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--settings", "faces"], "invalid choice: 'faces'"),
        (["--quick", "--record"], "--quick: its figures mean nothing"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["table", *arguments])
    assert sentence in capsys.readouterr().err
