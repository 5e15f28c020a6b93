"""Bad settings are refused with a sentence that names the field."""

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from train.data.config import DataConfig
from train.data.fields import IMAGE_SETS, Style, Task
from train.data.readers import DOMAINS
from train.data.world.questions import TASKS
from train.data.world.vocabulary import STYLES

TAUGHT: dict[str, Any] = {
    "partition": "task_style",
    "task_styles": {"caption": ["sketch", "night"], "digit": ["handwriting"]},
    "unseen_styles": {"caption": "pixel", "digit": "night"},
    "unseen_tasks": ["position"],
    "unseen_per_client": 5,
}
CLASSIFIED: dict[str, Any] = {
    "tasks": ["classify"],
    "styles": ["sketch", "night"],
    "unseen_styles": {"classify": "inverted"},
    "unseen_per_client": 5,
}
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


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"partition": "task"}, "task_styles: found name 'scenes' with partition 'task', allowed are 'scenes' with"),
        ({"tasks": ["classify"]}, r"tasks: found \['classify'\] with task_styles"),
        ({"task_styles": {"classify": ["night"]}}, "task_styles: found the task 'classify'"),
        ({"task_styles": {"caption": []}}, r"task_styles\.caption: found \[\], needed is at least one style"),
        ({"task_styles": {"vqa": ["night", "night"]}}, r"task_styles\.vqa: found \['night', 'night'\]"),
        (
            {"task_styles": {"vqa": ["handwriting"]}},
            r"task_styles\.vqa: found 'handwriting', allowed with the task digit",
        ),
        ({"task_styles": {"vqa": ["watercolour"]}}, "'handwriting'"),
        ({"unseen_per_client": 0}, "unseen_per_client: found 0; it and unseen_styles, unseen_tasks or unseen_domain"),
        ({"unseen_styles": {}, "unseen_tasks": []}, "unseen_per_client: found 5; it and unseen_styles, unseen_tasks"),
        ({"task_styles": {}, "partition": "style"}, "unseen_per_client: found 5 with partition 'style'"),
        ({"unseen_styles": {"vqa": "pixel"}}, "found the task 'vqa', allowed are those trained: caption, digit"),
        ({"unseen_styles": {"caption": "night"}}, r"unseen_styles\.caption: found 'night', which clients train on"),
        ({"unseen_styles": {"caption": "handwriting"}}, r"unseen_styles\.caption: found 'handwriting', allowed with"),
        (
            {"unseen_styles": {"digit": "handwriting"}},
            r"unseen_styles\.digit: found 'handwriting', which clients train",
        ),
        ({"unseen_tasks": ["caption"]}, "unseen_tasks: found 'caption', allowed are tasks with questions that no"),
        ({"unseen_tasks": ["classify"]}, "unseen_tasks: found 'classify'"),
    ],
)
def test_refusals_of_tasks_and_what_is_unseen(settings: dict[str, Any], sentence: str) -> None:
    DataConfig.model_validate(TAUGHT)
    with pytest.raises(ValidationError, match=sentence):
        DataConfig.model_validate(TAUGHT | settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"unseen_styles": {"classify": "night"}}, r"unseen_styles\.classify: found 'night', which clients train on"),
        ({"unseen_styles": {"classify": "handwriting"}}, r"unseen_styles\.classify: found 'handwriting', allowed with"),
        ({"unseen_styles": {"vqa": "inverted"}}, "found the task 'vqa', allowed are those trained: classify"),
        ({"unseen_per_client": 0}, "unseen_per_client: found 0; it and"),
        (
            {"partition": "dirichlet"},
            "found 5 with partition 'dirichlet', allowed with questions .* or to classify them",
        ),
        ({"unseen_tasks": ["vqa"]}, "with partition 'style', allowed with .* and no unseen_tasks"),
        ({"unseen_domain": "Art"}, "unseen_domain: found 'Art', allowed with partition 'domain' alone"),
    ],
)
def test_refusals_of_a_style_left_out(settings: dict[str, Any], sentence: str) -> None:
    DataConfig.model_validate(CLASSIFIED)
    with pytest.raises(ValidationError, match=sentence):
        DataConfig.model_validate(CLASSIFIED | settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"unseen_domain": "art"}, "unseen_domain: found 'art', allowed are Art, Clipart, Product, Real World"),
        ({"clients": 4}, "clients: found 4, office_home has 3 domains besides Art: allowed are multiples"),
        ({"unseen_per_client": 0}, "unseen_per_client: found 0; it and"),
        ({"unseen_domain": None}, "unseen_per_client: found 9; it and"),
        ({"partition": "dirichlet"}, "unseen_domain: found 'Art', allowed with partition 'domain' alone"),
        ({"unseen_styles": {"classify": "night"}}, "found 9 with partition 'domain', allowed with questions"),
    ],
)
def test_refusals_of_a_domain_left_out(settings: dict[str, Any], sentence: str) -> None:
    left_out = PUBLIC | {"name": "office_home", "partition": "domain", "unseen_domain": "Art", "unseen_per_client": 9}
    DataConfig.model_validate(left_out | {"clients": 12})
    with pytest.raises(ValidationError, match=sentence):
        DataConfig.model_validate(left_out | {"clients": 12} | settings)


def test_the_styles_taught() -> None:
    assert DataConfig.model_validate(TAUGHT).taught == {"caption": ("sketch", "night"), "digit": ("handwriting",)}
    product = DataConfig(partition="task_style", tasks=("vqa", "count"), styles=("night", "pixel"))
    assert product.taught == {"vqa": ("night", "pixel"), "count": ("night", "pixel")}


def test_defaults_are_valid_and_frozen() -> None:
    config = DataConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.clients = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        *((name, partition) for name in IMAGE_SETS for partition in ("pathological", "dirichlet")),
        ("cifar100", "pachinko"),
        *((name, "domain") for name in DOMAINS),
    ],
)
def test_what_public_data_sets_allow(name: str, partition: str) -> None:
    DataConfig.model_validate(PUBLIC | {"name": name, "partition": partition, "clients": 12})


def test_config_names_every_style_and_task() -> None:
    assert get_args(Style) == STYLES
    assert get_args(Task) == (*TASKS, "classify")


def test_every_field_is_described() -> None:
    assert all(field.description for field in DataConfig.model_fields.values())
