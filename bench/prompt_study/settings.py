"""Which runs a study is made of: the data settings, the methods, and what is changed of pFedMoAP in the ablations."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from train.methods.promptfl import PromptFamilyOptions
from train.run.config import RunConfig

ROOT: Final = Path(__file__).resolve().parents[2]
Values = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A configuration of train/configs and what is changed of its data."""

    config: str
    data: Mapping[str, Any]


SETTINGS: Final = {
    "scenes_colour": Setting("pfedmoap_scenes", {"styles": ["cartoon"]}),
    "scenes_colour_style": Setting("pfedmoap_scenes", {}),
    "digits_2": Setting("pfedmoap_digits", {"partition": "pathological", "classes_per_client": 2}),
    "digits_dirichlet": Setting("pfedmoap_digits", {}),
}
COMPARED: Final[dict[str, Values]] = {
    "coop": {"name": "coop"},
    "promptfl": {"name": "promptfl"},
    "pfedprompt": {"name": "pfedprompt", "opt_in": "all"},
    "pfedmoap": {"name": "pfedmoap"},
}
ABLATIONS: Final[dict[str, Values]] = {
    "K_e = 0": {"experts": 0},
    "K_e = 1": {"experts": 1},
    "K_e = 1, random": {"experts": 1, "selection": "random"},
    "K_e = 3": {"experts": 3},
    "K_e = 3, random": {"experts": 3, "selection": "random"},
    "λ = 0": {"mixing": 0.0},
    "λ = 1": {"mixing": 1.0},
}
"""Beside pFedMoAP as configured: the prompts of all others as experts (scenes 9, digits 4), nearest, λ = 0.5.

K_e = 0: the gate over the own prompt alone, nothing sent."""


def run_config(name: str, seed: int = 0, method: Values | None = None, **sections: Values) -> RunConfig:
    """train/configs/<name>.yaml with fields of its sections changed; another ``method`` keeps the same prompt."""
    values: Values = yaml.safe_load((ROOT / "train" / "configs" / f"{name}.yaml").read_text())
    configured = values["method"]
    if method is not None:
        same = method.get("name", configured["name"]) == configured["name"]
        configured = {**(configured if same else {"prompt": configured["prompt"]}), **method}
    changed = {section: {**values.get(section, {}), **fields} for section, fields in sections.items()}
    return RunConfig.model_validate({**values, **changed, "method": configured, "seed": seed})


def prompt_length(config: RunConfig) -> int:
    """M, the vectors of the prompt."""
    assert isinstance(config.method, PromptFamilyOptions)
    return config.method.prompt.length
