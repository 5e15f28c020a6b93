"""Bad settings are refused with a sentence that names the field."""

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from train.data.config import IMAGE_SETS, DataConfig, Style, Task
from train.data.questions import TASKS
from train.data.vocabulary import STYLES

PUBLIC: dict[str, Any] = {"name": "dtd", "path": "data", "tasks": ["classify"], "partition": "pathological"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tasks": ["classify", "caption"]}, "'classify' must be the only task"),
        ({"name": "digits", "tasks": ["caption"]}, "digits allow"),
        ({"name": "digits", "tasks": ["classify"], "partition": "style"}, "allowed are 'pathological' or 'dirichlet'"),
        ({"partition": "dirichlet"}, "tasks must be"),
        ({"few_shot": 8}, "few_shot: found 8"),
        ({"tasks": ["classify"], "colour": "one_per_client", "classes_per_client": 11}, "at most 10 exist"),
        ({"clients": 0}, "greater than or equal to 1"),
        ({"alpha": 0}, "greater than 0"),
        ({"styles": []}, "at least 1 item"),
        ({"styles": ["watercolour"]}, "sketch"),
        ({"tasks": ["sing"]}, "caption"),
        ({"partition": "by_mood"}, "pathological"),
        ({"cleints": 3}, "Extra inputs are not permitted"),
        ({"partition": "domain"}, "with name 'scenes' allowed are 'pathological' or 'dirichlet' or 'style'"),
        ({"tasks": ["classify"], "classes_per_client": None}, "null is for partition 'pathological', found 'style'"),
        ({"tasks": ["classify"], "classes_per_client": 1}, "greater than or equal to 2"),
        ({"tasks": ["classify"], "partition": "pathological", "candidates": "all"}, "is for public data sets"),
        ({"classes": ["cat"]}, "classes: found .'cat'. with name 'scenes', which has its own"),
        ({"name": "dtd"}, "path: found None with name 'dtd'"),
        (PUBLIC | {"tasks": ["caption"]}, r"tasks: found \['caption'\], dtd allows \['classify'\] alone"),
        (PUBLIC | {"partition": "style"}, "found 'style', with name 'dtd' allowed are 'pathological' or 'dirichlet'"),
        (PUBLIC | {"partition": "pachinko"}, "with name 'dtd' allowed are"),
        (PUBLIC | {"name": "cifar10", "partition": "pachinko"}, "with name 'cifar10' allowed are"),
        (PUBLIC | {"partition": "dirichlet", "candidates": "all"}, "candidates: 'all' is for"),
        (PUBLIC | {"classes": ["a", "b", "a"]}, "each may be named once"),
        (
            PUBLIC | {"name": "domainnet", "partition": "domain", "clients": 9},
            "clients: found 9, domainnet has 6 domains: allowed are multiples",
        ),
    ],
)
def test_refusals(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        DataConfig.model_validate(settings)


def test_defaults_are_valid_and_frozen() -> None:
    config = DataConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.clients = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        *((name, partition) for name in IMAGE_SETS for partition in ("pathological", "dirichlet")),
        ("cifar100", "pachinko"),
        ("domainnet", "domain"),
        ("office_caltech10", "domain"),
    ],
)
def test_what_public_data_sets_allow(name: str, partition: str) -> None:
    DataConfig.model_validate(PUBLIC | {"name": name, "partition": partition, "clients": 12})


def test_config_names_every_style_and_task() -> None:
    assert get_args(Style) == STYLES
    assert get_args(Task) == (*TASKS, "classify")


def test_every_field_is_described() -> None:
    assert all(field.description for field in DataConfig.model_fields.values())
