"""Learning rates, chosen for each method and setting on the clients' validation examples, on seeds of their own."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import mean
from typing import Any, Final

from bench.prompt_study.accuracy import Job, Result, Row, by_client
from bench.prompt_study.settings import COMPARED, SETTINGS, Values

RATES: Final = (0.01, 0.03, 0.1, 0.3)
GATE_RATES: Final = (0.01, 0.05)
SEEDS: Final = (10, 11)


def candidates(method: str) -> Iterator[dict[str, float]]:
    """The rates to try: ``lr``, and for pFedMoAP each with every ``gate_lr``."""
    if method == "pfedmoap":
        yield from ({"lr": lr, "gate_lr": gate} for lr, gate in product(RATES, GATE_RATES))
    else:
        yield from ({"lr": lr} for lr in RATES)


def row(name: str, method: str, rates: Mapping[str, float], **options: Any) -> Row:
    """A run of ``method`` with these rates and options of its own."""
    gate = {"gate_lr": rates["gate_lr"]} if "gate_lr" in rates else {}
    return Row(name, {**COMPARED[method], **gate, **options}, {"lr": rates["lr"]} if "lr" in rates else {})


def jobs(settings: Sequence[str], seeds: Sequence[int], data: Values, federation: Values) -> list[Job]:
    """Every candidate of every method, in every setting and seed."""
    rows = [row(spell(method, rates), method, rates) for method in COMPARED for rates in candidates(method)]
    return [Job(setting, seed, rows, "val", data, federation) for setting in settings for seed in seeds]


def choose(results: Sequence[Result]) -> dict[str, Any]:
    """``chosen``: the rates by setting and method with the best mean client, equally good ones: the smaller lr.

    ``tried``: the validation accuracy of every candidate, mean over clients and seeds.
    """
    chosen: dict[str, Any] = {}
    tried: dict[str, Any] = {}
    for setting in (name for name in SETTINGS if any(result.setting == name for result in results)):
        of_setting = [result for result in results if result.setting == setting]
        chosen[setting], tried[setting] = {}, {}
        for method in COMPARED:
            scored = [
                {**rates, "accuracy": mean(map(mean, by_client(of_setting, spell(method, rates))))}
                for rates in candidates(method)
            ]
            best = max(scored, key=lambda one: one["accuracy"])
            tried[setting][method] = scored
            chosen[setting][method] = {name: value for name, value in best.items() if name != "accuracy"}
    return {"chosen": chosen, "tried": tried}


def spell(method: str, rates: Mapping[str, float]) -> str:
    """A candidate's name."""
    return " ".join([method, *(f"{name}={value:g}" for name, value in rates.items())])
