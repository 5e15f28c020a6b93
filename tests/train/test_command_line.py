"""The configuration on the command line: what it resolves to, and the sentences it refuses with."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.train.small import CLIP
from train.command_line import parse
from train.errors import ConfigError
from train.fed import main


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(CLIP))
    return str(file)


def test_options_override_the_file(path: str) -> None:
    config, options = parse(
        ["--config", path, "--client.lr", "0.5", "--data.styles", "[paint, pixel]", "--method.prompt.length", "2"]
    )
    assert config.client.lr == 0.5
    assert config.data.styles == ("paint", "pixel")
    assert config.method.name == "promptfl"
    assert config.method.prompt.length == 2
    assert config.federation.rounds == 2  # the file's
    assert options.out is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--client.lrr", "1"], "client.lrr: unknown option; did you mean client.lr?"),
        (["--rounds", "1"], "rounds: unknown option; did you mean federation.rounds?"),
        (["--client.lr", "-1"], "client.lr: Input should be greater than 0 (found -1)"),
        (["--federation.rounds", "many"], "federation.rounds: Input should be a valid integer"),
        (["--client.local_epochs", "2"], "give exactly one of client.local_steps and client.local_epochs"),
        (["--method.name", "fedx"], "method: Input tag 'fedx' found"),
        (["--method.lora.rank", "4"], "method.lora: unknown key"),
        (["--data.styles", "[cubism]"], "data.styles.0: Input should be 'flat'"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(path: str, arguments: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(["--config", path, *arguments])
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("metod: {name: fedit}\n", "metod: unknown key; did you mean method?"),
        ("- a\n", "must hold sections such as 'data:', not a list"),
        ("a: [\n", "is not YAML"),
    ],
)
def test_wrong_files_are_refused_in_a_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError) as refused:
        parse(["--config", str(file)])
    assert sentence in str(refused.value)


def test_a_misspelt_key_in_a_section_names_the_nearest(tmp_path: Path) -> None:
    wrong = {**CLIP, "client": {**CLIP["client"], "optimiser": "sgd"}}
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(wrong))
    with pytest.raises(ConfigError, match=r"client\.optimiser: unknown key; did you mean client\.optimizer\?"):
        parse(["--config", str(file)])


def test_no_configuration_at_all() -> None:
    with pytest.raises(ConfigError, match="--config: missing"):
        parse([])


def test_main_prints_one_line_and_fails(path: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--config", path, "--base.path", str(tmp_path / "nowhere"), "--out", str(tmp_path / "run")]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("train/fed.py: base ")
    assert "nowhere" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_nothing_to_resume(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--resume", str(tmp_path)]) == 2
    assert "--resume:" in capsys.readouterr().err


def test_a_resumed_run_takes_no_other_option(path: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--resume: goes on with the run's own configuration; only"):
        parse(["--resume", str(tmp_path), "--client.lr", "1"])


def test_help_documents_every_field_from_any_directory(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "train" / "fed.py"
    shown = subprocess.run(
        [sys.executable, script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    for option in ("--client.lr", "--method.lora.rank", "--method.prompt.length", "--data.partition", "--resume"):
        assert option in shown
    assert "peak learning rate" in shown
