"""Whether a configuration's tasks, their styles, and what is held out of both fit together."""

from train.data.fields import DataFields
from train.data.vocabulary import HANDWRITING

ONE_TASK = ("task", "task_style")
"""Partitions in which a client has one task."""


def check_tasks(config: DataFields) -> None:
    """Raises ValueError with one sentence where they do not."""
    _check_taught(config)
    _check_unseen(config)


def _check_taught(config: DataFields) -> None:
    if config.task_styles and (config.name, config.partition) != ("scenes", "task_style"):
        raise ValueError(
            f"task_styles: found name {config.name!r} with partition {config.partition!r}, allowed are 'scenes' with"
            " 'task_style'"
        )
    if config.classify and config.task_styles:
        raise ValueError("tasks: found ['classify'] with task_styles, which is for tasks that ask a question")
    for task, styles in config.task_styles.items():
        if not styles or len(set(styles)) < len(styles):
            raise ValueError(f"task_styles.{task}: found {list(styles)}, needed is at least one style, each named once")
        if task == "classify":
            raise ValueError("task_styles: found the task 'classify', allowed are tasks that ask a question")
        _check_style("task_styles", task, styles)


def _check_unseen(config: DataFields) -> None:
    drawn = bool(config.unseen_styles or config.unseen_tasks)
    if (drawn or config.unseen_domain is not None) != (config.unseen_per_client > 0):
        raise ValueError(
            f"unseen_per_client: found {config.unseen_per_client}; it and unseen_styles, unseen_tasks or unseen_domain"
            " need each other"
        )
    if drawn and not _can_be_held_out(config):
        raise ValueError(
            f"unseen_per_client: found {config.unseen_per_client} with partition {config.partition!r}, allowed with"
            " questions about scenes and partition 'task' or 'task_style', or to classify them with partition 'style'"
            " and no unseen_tasks"
        )
    taught = config.taught
    for task, style in config.unseen_styles.items():
        if task not in taught:
            raise ValueError(f"unseen_styles: found the task {task!r}, allowed are those trained: {', '.join(taught)}")
        if style in taught[task]:
            raise ValueError(f"unseen_styles.{task}: found {style!r}, which clients train on")
        _check_style("unseen_styles", task, (style,))
    for task in config.unseen_tasks:
        if task in taught or task == "classify":
            raise ValueError(f"unseen_tasks: found {task!r}, allowed are tasks with questions that no client trains")


def _can_be_held_out(config: DataFields) -> bool:
    """Whether this federation is one of which styles, and where any are named tasks, can be held out."""
    if config.classify:
        return config.name == "scenes" and config.partition == "style" and not config.unseen_tasks
    return config.name == "scenes" and config.partition in ONE_TASK


def _check_style(field: str, task: str, styles: tuple[str, ...]) -> None:
    """Not every task can be asked in every style."""
    if HANDWRITING in styles and task != "digit":
        raise ValueError(f"{field}.{task}: found 'handwriting', allowed with the task digit alone")
