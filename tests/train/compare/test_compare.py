"""Finished runs in one table: what is a row, what a difference is, and what cannot be compared."""

import json
from pathlib import Path
from statistics import mean

import pytest

from tests.train.small import yaml_file
from train.compare.__main__ import main
from train.compare.runs import read_run, rows_of
from train.fed import main as fed

SEEDS = (0, 1)
RATES = (0.02, 0.3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[float, int], Path]:
    """Four runs of promptfl: two learning rates, two seeds each."""
    folder = tmp_path_factory.mktemp("compared")
    path, made = yaml_file(folder, "promptfl", federation={"rounds": 1}), {}
    for lr in RATES:
        for seed in SEEDS:
            made[lr, seed] = folder / f"{lr}-{seed}"
            given = ["--config", str(path), "--client.lr", str(lr), "--seed", str(seed), "--out", str(made[lr, seed])]
            assert fed(given) == 0
    return made


def test_seeds_are_one_row_and_what_differs_is_its_name(runs: dict[tuple[float, int], Path]) -> None:
    rows = rows_of([read_run(runs[key]) for key in sorted(runs, key=lambda key: (key[0], -key[1]))])
    assert [row.name for row in rows] == ["promptfl, client.lr 0.02", "promptfl, client.lr 0.3"]
    assert [row.seeds for row in rows] == [[0, 1], [0, 1]]


def test_table_and_plot_say_what_the_runs_found(
    runs: dict[tuple[float, int], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*map(str, runs.values()), "--out", str(tmp_path / "table.md")]) == 0
    text = (tmp_path / "table.md").read_text()
    assert capsys.readouterr().out == text
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")
    found = {key: json.loads((folder / "results.json").read_text()) for key, folder in runs.items()}
    means = {lr: mean(found[lr, seed]["mean"]["personal"] for seed in SEEDS) for lr in RATES}
    lines = text.splitlines()
    for lr in RATES:
        line = next(line for line in lines if line.startswith(f"| promptfl, client.lr {lr} |"))
        assert f"| {100 * means[lr]:.1f} ± " in line
        assert f"| {found[lr, 0]['bytes_up'] / 1e6:.3g} |" in line
        assert line.endswith("| 0 1 |")
    difference = next(line for line in lines if line.startswith("| promptfl, client.lr 0.3 | ") and "[" in line)
    assert f"| {100 * (means[0.3] - means[0.02]):+.1f} | [" in difference
    assert "minus promptfl, client.lr 0.02" in text


def test_differences_turn_round_with_the_row_they_are_from(
    runs: dict[tuple[float, int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*map(str, runs.values()), "--against", str(runs[0.3, 0]), "--row", "global"]) == 0
    text = capsys.readouterr().out
    assert "points, global | minus promptfl, client.lr 0.3 |" in text


def test_a_row_without_a_seed_in_common_has_no_difference(
    runs: dict[tuple[float, int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(runs[0.02, 0]), str(runs[0.3, 1])]) == 0
    assert "no seed in common" in capsys.readouterr().out


def copied(run: Path, to: Path, **changed: object) -> Path:
    """The run with other values in its configuration."""
    to.mkdir()
    config = json.loads((run / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config | changed))
    (to / "results.json").write_bytes((run / "results.json").read_bytes())
    return to


def test_what_cannot_be_compared_is_refused(
    runs: dict[tuple[float, int], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = runs[0.02, 0]
    data = json.loads((one / "config.json").read_text())["data"]
    other = copied(one, tmp_path / "other", data={**data, "few_shot": 3})
    again = copied(one, tmp_path / "again", publish={"enabled": True})
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "config.json").write_text("{}")
    for arguments, sentence in (
        ([one, other], "data.few_shot is another than that of"),
        ([one, again], "the same experiment and seed as"),
        ([tmp_path / "nothing"], "has no config.json"),
        ([tmp_path / "unfinished"], "not finished, --resume goes on with it"),
        ([copied(one, tmp_path / "old", client={"steps": 3})], "config.json is not a configuration of this version"),
        ([one, "--row", "local", "--against", tmp_path], "is none of the runs"),
        ([one, "--out", tmp_path / "no" / "table.md"], "No such file"),
    ):
        assert main(list(map(str, arguments))) == 2
        said = capsys.readouterr()
        assert sentence in said.err, said.err
        assert said.out == ""
        assert len(said.err.splitlines()) == 1


def test_a_row_that_was_not_measured_is_named(
    runs: dict[tuple[float, int], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied(runs[0.02, 0], tmp_path / "run")
    results = json.loads((run / "results.json").read_text())
    results["clients"][0]["local"] = None
    (run / "results.json").write_text(json.dumps(results))
    assert main([str(run), "--row", "local"]) == 2
    assert "'local' was not measured" in capsys.readouterr().err
