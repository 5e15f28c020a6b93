"""Differential privacy through whole runs: what is refused, what counts, what is resumed, what is told."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters_store.__main__ import main as store_main
from adapters_store.store import Store
from tests.train.federation.test_rounds import SendsNaN
from tests.train.small import CONFIGS, config, federation, yaml_file
from train.errors import ConfigError
from train.fed import main
from train.federation.log import read_metrics
from train.federation.rounds import RoundError, participants
from train.methods import build_method
from train.methods.contract import ClientInfo, Turn
from train.models.clip import ResidentClip
from train.models.interfaces import Outputs
from train.run.command_line import parse
from train.run.config import RunConfig
from train.run.private import check_ready, costs_of, mechanism_of, planned, secret_key, taken

pytestmark = pytest.mark.numeric

DP = {"clip_norm": 0.5, "noise_multiplier": 2.0}
QUIET = {"evaluate": {"references": []}}


def private(method: str = "pfedmoap", /, dp: dict[str, Any] = DP, **sections: dict[str, Any]) -> RunConfig:
    """The small configuration of a method with differential privacy."""
    client = {"clip_norm": None, **sections.pop("client", {})}
    return config(method, privacy={"dp": dp}, client=client, **{**QUIET, **sections})


@pytest.mark.parametrize(
    ("method", "sections", "sentence"),
    [
        ("fedit", {}, "privacy.dp: fedit has no loss of each example alone; null is allowed"),
        ("coop", {}, "privacy.dp: coop uploads nothing that it could make private; null is allowed"),
        ("pfedprompt", {}, "method.opt_in: found 'all' with privacy.dp; a published memory holds training features"),
        ("promptfl", {"client": {"clip_norm": 1.0}}, "client.clip_norm: found 1 with privacy.dp"),
        ("promptfl", {"client": {"augment": "crop_flip"}}, "client.augment: found 'crop_flip' with privacy.dp"),
        ("promptfl", {"privacy": {"dp": {"clip_norm": 1.0}}}, "exactly one of privacy.dp.noise_multiplier and"),
        ("promptfl", {"privacy": {"dp": {**DP, "target_epsilon": 1}}}, "exactly one of privacy.dp.noise_multiplier"),
        ("promptfl", {"privacy": {"dp": {**DP, "noise_multiplier": 0.0}}}, "privacy.dp.noise_multiplier: Input should"),
        ("promptfl", {"privacy": {"dp": {**DP, "clipnorm": 1.0}}}, "did you mean privacy.dp.clip_norm?"),
    ],
)
def test_what_cannot_be_private_is_refused_in_a_sentence(
    tmp_path: Path, method: str, sections: dict[str, dict[str, Any]], sentence: str
) -> None:
    client = {"clip_norm": None, **sections.get("client", {})}
    values: dict[str, Any] = {**CONFIGS[method], "privacy": {"dp": DP}, **sections}
    values["client"] = {**CONFIGS[method]["client"], **client}
    (tmp_path / "run.yaml").write_text(json.dumps(values))
    with pytest.raises(ConfigError) as refused:
        parse(["--config", str(tmp_path / "run.yaml")])
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("wrapped", ["the instance's", "a delegate's"])
def test_a_loss_with_a_term_of_its_own_is_not_dropped_silently(
    clip: ResidentClip, tmp_path: Path, wrapped: str
) -> None:
    """Private gradients are those of each example's own loss: a term over the batch would not be in them."""
    wanted = private("promptfl")
    method: Any = build_method(wanted.method)
    plain = method.loss

    def with_a_term(outputs: Outputs, turn: Turn) -> torch.Tensor:
        return plain(outputs, turn) + outputs.loss.square()

    if wrapped == "the instance's":
        method.loss = with_a_term
    else:
        inner = method

        class Wrapper(type(inner)):  # type: ignore[misc]
            def __getattribute__(self, name: str) -> Any:
                return with_a_term if name == "loss" else getattr(inner, name)

        method = Wrapper(wanted.method)
    loop, _ = federation(wanted, clip, tmp_path, method)
    with pytest.raises(
        ValueError, match=r"^privacy.dp: promptfl has a loss beside each example's own; null is allowed$"
    ):
        loop.run()
    assert not list((tmp_path / "exchange").glob("train-*/up/*"))


def test_a_memory_that_nobody_publishes_may_be_private_and_options_switch_it_on(tmp_path: Path) -> None:
    assert private("pfedprompt", method={"opt_in": ()}).privacy.dp is not None
    path = yaml_file(tmp_path, "pfedmoap")  # holds `dp: null`
    found, _ = parse(["--config", str(path), "--privacy.dp.clip_norm", "0.5", "--privacy.dp.target_epsilon", "3"])
    assert found.privacy.dp is not None
    assert (found.privacy.dp.clip_norm, found.privacy.dp.target_epsilon, found.privacy.dp.delta) == (0.5, 3, 1e-5)


def test_a_delta_that_gives_whole_examples_away_and_a_missing_extra_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dp = private().privacy.dp
    assert dp is not None
    check_ready(dp, [ClientInfo("ann", 99_999)])
    with pytest.raises(ValueError, match="ann holds 100000 examples, so less than 1/100000 is allowed"):
        check_ready(dp, [ClientInfo("bob", 3), ClientInfo("ann", 100_000)])
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(ValueError, match="opacus is not installed; pip install"):
        check_ready(dp, [ClientInfo("ann", 10)])


def test_steps_are_counted_by_client_from_the_rounds_it_is_drawn_for() -> None:
    """Two epochs of ⌈n / 8⌉ steps at rate 8 / n in each round a client is drawn for, and nothing before."""
    clients = [ClientInfo(f"c{i}", 4 + 10 * i) for i in range(5)]
    drawn = private(federation={"rounds": 4, "clients_per_round": 2})
    method = build_method(drawn.method)
    rounds = [[client.id for client in participants(clients, 2, drawn.seed, number)] for number in range(1, 5)]
    found = planned(drawn, method, clients)
    for client in clients:
        turns = sum(client.id in names for names in rounds)
        assert found[client.id].steps == turns * 2 * -(-client.examples // 8)
        assert found[client.id].rate == min(1, 8 / client.examples)
    lines = [{"phase": "train", "client": name} for names in rounds for name in names]
    assert taken(drawn, clients, lines) == found
    costs = costs_of(drawn, mechanism_of(drawn, method, clients, Path()), clients, lines[:-2])
    assert costs is not None
    never = [client.id for client in clients if not any(client.id in names for names in rounds[:-1])]
    assert {client for client, value in costs.epsilons.items() if value == 0} == set(never)


def test_a_turn_that_was_refused_or_late_counts(clip: ResidentClip, tmp_path: Path) -> None:
    wanted = private("promptfl")
    loop, _ = federation(wanted, clip, tmp_path / "refused", SendsNaN(wanted.method))
    assert loop._round(1, None).progress["taken_part"].keys() == {"client-00", "client-02"}
    late, _ = federation(private("promptfl", federation={"round_timeout": 1e-9}), clip, tmp_path / "late")
    with pytest.raises(RoundError):
        late._round(1, None)
    for name in ("refused", "late"):
        found = taken(wanted, loop.clients, read_metrics(tmp_path / name / "metrics.jsonl"))
        assert {exposure.steps for exposure in found.values()} == {3}


def test_the_wanted_epsilon_is_kept_by_every_client_with_noise_of_its_own(clip: ResidentClip, tmp_path: Path) -> None:
    """Digits in Dirichlet shares: a client with few examples needs more noise than one with many."""
    digits = {"name": "digits", "partition": "dirichlet", "few_shot": None, "train_per_client": 2000}
    wanted = private("promptfl", dp={"clip_norm": 0.5, "target_epsilon": 3.0}, data=digits, client={"batch_size": 200})
    loop, backend = federation(wanted, clip, tmp_path)
    mechanism = backend.site.mechanism
    assert mechanism is not None
    exposures = planned(wanted, loop.method, loop.clients)
    lines = [{"phase": "train", "client": client.id} for client in loop.clients for _ in range(2)]
    assert taken(wanted, loop.clients, lines) == exposures
    costs = costs_of(wanted, mechanism, loop.clients, lines)
    assert costs is not None
    assert all(2.99 < value <= 3.0 for value in costs.epsilons.values())
    order = sorted(loop.clients, key=lambda client: client.examples)
    sigmas = [mechanism.noise_multipliers[client.id] for client in order]
    assert sigmas == sorted(sigmas, reverse=True)
    assert sigmas[0] > sigmas[-1]
    assert costs.of().noise_multiplier == sigmas[-1]


def published(loop: Any) -> list[Any]:
    endings, shared = loop.run()
    return [*(ending.artefact.files for ending in endings.values()), shared.files]


@pytest.mark.parametrize("secure", [False, True])
def test_a_round_cut_short_is_played_again_with_the_same_bits(clip: ResidentClip, tmp_path: Path, secure: bool) -> None:
    """A resumed run releases nothing twice: its replayed round draws the same samples and the same noise."""
    wanted = private(dp={**DP, "secure": secure})
    sent = []
    for _ in range(2):  # the second time as another process would, after a kill
        loop, _ = federation(wanted, clip, tmp_path / "cut")
        first = loop.checkpoints.latest() or loop._round(1, None)
        loop._exchange(Turn("train", 2), loop.clients, first.server, first)  # answered, never committed
        sent.append((tmp_path / "cut" / "exchange" / "train-0002-0" / "up" / "client-00.safetensors").read_bytes())
    assert sent[0] == sent[1]
    whole, _ = federation(wanted, clip, tmp_path / "whole")
    same = published(loop) == published(whole)
    assert same != secure  # another run has another secret
    logs = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("cut", "whole")]
    assert taken(wanted, whole.clients, logs[0]) == taken(wanted, whole.clients, logs[1])
    if secure:
        assert (tmp_path / "cut" / "noise.key").stat().st_mode & 0o077 == 0


def test_a_begun_run_without_its_secret_does_not_go_on(tmp_path: Path) -> None:
    key = secret_key(tmp_path)
    assert key == secret_key(tmp_path) != secret_key(tmp_path / "other")
    (tmp_path / "config.json").touch()
    assert secret_key(tmp_path) == key
    (tmp_path / "noise.key").unlink()
    with pytest.raises(ValueError, match=r"privacy\.dp\.secure: .*noise\.key is missing"):
        secret_key(tmp_path)


def test_the_noise_reaches_prompt_and_gate_and_no_loss_is_told(clip: ResidentClip, tmp_path: Path) -> None:
    states = []
    for name, sigma in (("a", 2.0), ("b", 2.0001)):
        loop, _ = federation(private(dp={**DP, "noise_multiplier": sigma}), clip, tmp_path / name)
        last = loop._round(2, loop._round(1, None))
        states.append(last.client("client-00"))
    assert states[0] is not None
    assert states[1] is not None
    changed = {key for key in states[0] if not torch.equal(states[0][key], states[1][key])}
    assert changed == set(states[0])
    report = json.loads((tmp_path / "a" / "exchange" / "train-0002-0" / "up" / "client-00.json").read_text())
    assert report["loss"] != report["loss"]  # not a number: the mean loss over examples is not noised
    assert all(
        line["loss"] is None for line in read_metrics(tmp_path / "a" / "metrics.jsonl") if line["phase"] == "train"
    )


def test_the_personal_turn_is_plain_and_counts_nothing(clip: ResidentClip, tmp_path: Path) -> None:
    wanted = private("promptfl", client={"personal_steps": 3})
    loop, _ = federation(wanted, clip, tmp_path)
    loop.run()
    lines = read_metrics(tmp_path / "metrics.jsonl")
    told = [line["loss"] for line in lines if line["phase"] == "personal"]
    assert len(told) == 3
    assert None not in told
    assert {e.steps for e in taken(wanted, loop.clients, lines).values()} == {2 * 3}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pFedMoAP run from the command line to its published versions."""
    folder = tmp_path_factory.mktemp("private")
    publish = {"enabled": True, "store": str(folder / "store")}
    path = yaml_file(folder, "pfedmoap", publish=publish, privacy={"dp": DP})
    assert main(["--config", str(path), "--out", str(folder / "run")]) == 0
    return folder


def test_results_say_what_it_cost(played: Path) -> None:
    results = json.loads((played / "run" / "results.json").read_text())
    privacy = results["privacy"]
    assert privacy["epsilon"] == max(client["epsilon"] for client in results["clients"]) > 0
    assert privacy == {
        "epsilon": privacy["epsilon"],
        "delta": 1e-5,
        "noise_multiplier": 2.0,
        "clip_norm": 0.5,
        "accountant": "pld",
        "covers": "uploads",
    }
    local = read_metrics(played / "run" / "local" / "metrics.jsonl")
    assert all(line["loss"] is not None for line in local if line["phase"] == "train")  # nothing leaves: no noise


def test_manifest_report_and_command_line_say_it_too(played: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = json.loads((played / "run" / "results.json").read_text())
    store = Store(played / "store")
    versions = json.loads((played / "run" / "versions.json").read_text())
    for client in results["clients"]:
        artefact = store.verify(client["id"], versions[client["id"]])
        assert artefact.manifest.privacy is not None
        assert artefact.manifest.privacy.epsilon == client["epsilon"]
        assert artefact.report["privacy"] == artefact.manifest.privacy.model_dump(mode="json")
    shared = store.artefact("global", versions["global"]).manifest.privacy
    assert shared is not None
    assert shared.model_dump(mode="json") == results["privacy"]
    assert store_main(["--store", str(store.root), "show", "client-00", versions["client-00"]]) == 0
    shown = capsys.readouterr().out
    assert f"epsilon: {results['clients'][0]['epsilon']}" in shown
    assert "covers: uploads" in shown
    assert store_main(["--store", str(store.root), "--json", "show", "client-00"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["epsilon"] == results["clients"][0]["epsilon"]
