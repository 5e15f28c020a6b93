"""Bad settings are refused with a sentence that names the field."""

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from train.data.config import DataConfig, Style, Task
from train.data.questions import TASKS
from train.data.vocabulary import STYLES


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
    ],
)
def test_refusals(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        DataConfig.model_validate(settings)


def test_defaults_are_valid_and_frozen() -> None:
    config = DataConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.clients = 5  # type: ignore[misc]


def test_config_names_every_style_and_task() -> None:
    assert get_args(Style) == STYLES
    assert get_args(Task) == (*TASKS, "classify")


def test_every_field_is_described() -> None:
    assert all(field.description for field in DataConfig.model_fields.values())
