"""The configuration on the command line: what it resolves to, and the sentences it refuses with."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from adapters_store.paths import PROJECT_ROOT
from tests.train.small import CLIP, config
from train.errors import ConfigError
from train.fed import main
from train.methods import METHODS
from train.methods.fedit import FedITOptions
from train.run.command_line import parse


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
    script = PROJECT_ROOT / "train" / "fed.py"
    shown = subprocess.run(
        [sys.executable, script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    for option in ("--client.lr", "--method.lora.rank", "--method.prompt.length", "--data.partition", "--resume"):
        assert option in shown
    assert "peak learning rate" in shown


def wrong(path: str, *arguments: str) -> list[str]:
    """The sentences that these options are refused with."""
    with pytest.raises(ConfigError) as refused:
        parse(["--config", path, *arguments])
    return str(refused.value).splitlines()


def test_everything_that_is_wrong_is_said_at_once(path: str) -> None:
    sentences = wrong(path, "--client.lrr", "1", "--data.clients", "0", "--client.lr", "-1", "--client.batch", "2")
    assert [sentence.split(":")[0] for sentence in sentences] == [
        "client.lrr",
        "client.batch",
        "data.clients",
        "client.lr",
    ]


def test_what_does_not_fit_together_is_said_at_once(path: str) -> None:
    sentences = wrong(path, "--method.name", "sap", "--client.personal_steps", "3")
    assert [sentence.split(":")[0] for sentence in sentences] == ["federation.rounds", "client.personal_steps"]


def test_misfits_of_every_section_are_said_with_those_between_sections(path: str) -> None:
    within_data = ["--data.partition", "domain", "--data.shared", "images", "--data.classes", "[cat, cat]"]
    sentences = wrong(path, "--method.name", "ataf", "--client.local_epochs", "2", *within_data)
    assert [sentence.split(":")[0] for sentence in sentences] == [
        "data.shared",
        "data.partition",
        "data.classes",
        "data.classes",
        "client.local_steps",
        "federation.rounds",
        "data.clients",
        "client.personal_steps",
    ]


def test_a_misfit_deep_in_the_method_has_its_whole_name(path: str) -> None:
    (sentence,) = wrong(
        path, "--method.name", "sap", "--method.anchors.source", "coco", "--federation.rounds", "1",
        "--client.personal_steps", "0",
    )  # fmt: skip
    assert sentence.startswith("method.anchors.path: found None with source 'coco'")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("client.learning_rate", "client.lr"),
        ("learning_rate", "client.lr"),
        ("client.batch", "client.batch_size"),
        ("client.epochs", "client.local_epochs"),
        ("federation.num_rounds", "federation.rounds"),
        ("data.num_clients", "data.clients"),
        ("store", "publish.store"),
    ],
)
def test_the_option_that_was_meant_is_named(path: str, given: str, meant: str) -> None:
    assert wrong(path, f"--{given}", "1") == [f"{given}: unknown option; did you mean {meant}?"]


def test_texts_are_taken_as_they_are_written(path: str) -> None:
    config, _ = parse(
        ["--config", path, "--base.zero_shot_template", "{class}", "--tracking.project", "1", "--publish.store", "null"]
    )
    assert config.base.zero_shot_template == "{class}"
    assert config.tracking.project == "1"
    assert config.publish.store is None


def test_a_template_without_a_class_is_refused(path: str) -> None:
    sentence = wrong(path, "--base.zero_shot_template", "a photo.")
    assert sentence == ["base.zero_shot_template: {class} is missing, the place of the class's name (found 'a photo.')"]


def test_another_method_takes_its_defaults_and_what_is_dropped_is_said(path: str) -> None:
    config, options = parse(
        ["--config", path, "--method.name", "fedit", "--method.lora.rank", "4", "--client.personal_steps", "0"]
    )
    assert config.method.model_dump() == FedITOptions.model_validate({"lora": {"rank": 4}}).model_dump()
    assert options.notes == ["method.name: fedit in place of promptfl, whose prompt is dropped"]
    config, options = parse(["--config", path, "--method.name", "coop"])
    assert config.method.prompt.length == 4  # the file's: coop has it too
    assert options.notes == []


def test_an_option_of_another_method_says_whose_it_is(path: str) -> None:
    assert wrong(path, "--method.lora.rank", "4") == [
        "method.lora: unknown key of promptfl, which takes weighting, prompt, aggregator;"
        " anchored, ataf, fedit, pilot, sap have it"
    ]


def test_help_shows_every_method_with_its_own_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parse(["--help"])
    said = capsys.readouterr().out
    for method in METHODS:
        rank = re.search(
            rf"\nmethod {method}:\n(?:(?!\n\n).)*?--method\.lora\.rank .*?\(default:\s+(\d+)\)", said, re.DOTALL
        )
        options = config(method).method.model_validate({"name": method})
        assert f"\nmethod {method}:\n" in said
        assert (int(rank[1]) if rank else None) == (options.lora.rank if hasattr(options, "lora") else None)
