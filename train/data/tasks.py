"""Whether a configuration's tasks, their styles, and what is held out of both fit together."""

from collections.abc import Iterator

from train.data.fields import DataFields
from train.data.world.vocabulary import HANDWRITING

ONE_TASK = ("task", "task_style")
"""Partitions in which a client has one task."""


def misfits_of_tasks(config: DataFields) -> Iterator[str]:
    """A sentence for each thing that does not."""
    yield from _misfits_of_taught(config)
    yield from _misfits_of_unseen(config)


def _misfits_of_taught(config: DataFields) -> Iterator[str]:
    if config.task_styles and (config.name, config.partition) != ("scenes", "task_style"):
        yield (
            f"task_styles: found name {config.name!r} with partition {config.partition!r}, allowed are 'scenes' with"
            " 'task_style'"
        )
    if config.classify and config.task_styles:
        yield "tasks: found ['classify'] with task_styles, which is for tasks that ask a question"
    for task, styles in config.task_styles.items():
        if not styles or len(set(styles)) < len(styles):
            yield f"task_styles.{task}: found {list(styles)}, needed is at least one style, each named once"
        if task == "classify":
            yield "task_styles: found the task 'classify', allowed are tasks that ask a question"
        yield from _misfits_of_styles("task_styles", task, styles)


def _misfits_of_unseen(config: DataFields) -> Iterator[str]:
    drawn = bool(config.unseen_styles or config.unseen_tasks)
    if (drawn or config.unseen_domain is not None) != (config.unseen_per_client > 0):
        yield (
            f"unseen_per_client: found {config.unseen_per_client}; it and unseen_styles, unseen_tasks or unseen_domain"
            " need each other"
        )
    if drawn and not _can_be_held_out(config):
        yield (
            f"unseen_per_client: found {config.unseen_per_client} with partition {config.partition!r}, allowed with"
            " questions about scenes and partition 'task' or 'task_style', or to classify them with partition 'style'"
            " and no unseen_tasks"
        )
    taught = config.taught
    for task, style in config.unseen_styles.items():
        if task not in taught:
            yield f"unseen_styles: found the task {task!r}, allowed are those trained: {', '.join(taught)}"
        elif style in taught[task]:
            yield f"unseen_styles.{task}: found {style!r}, which clients train on"
        yield from _misfits_of_styles("unseen_styles", task, (style,))
    for task in config.unseen_tasks:
        if task in taught or task == "classify":
            yield f"unseen_tasks: found {task!r}, allowed are tasks with questions that no client trains"


def _can_be_held_out(config: DataFields) -> bool:
    """Whether this federation is one of which styles, and where any are named tasks, can be held out."""
    if config.classify:
        return config.name == "scenes" and config.partition == "style" and not config.unseen_tasks
    return config.name == "scenes" and config.partition in ONE_TASK


def _misfits_of_styles(field: str, task: str, styles: tuple[str, ...]) -> Iterator[str]:
    """Not every task can be asked in every style."""
    if HANDWRITING in styles and task != "digit":
        yield f"{field}.{task}: found 'handwriting', allowed with the task digit alone"
