"""What data a federation holds: the `data:` section of a configuration."""

from typing import Annotated, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from train.data.readers import DOMAINS
from train.data.sources import Source
from train.data.tasks import check_tasks
from train.data.vocabulary import COLOURS, DIGITS, SHAPES

Style = Literal[
    "flat", "photo", "texture", "sketch", "cartoon", "paint", "pixel", "stipple", "hatch", "night", "inverted"
]
TaskStyle = Literal[Style, "handwriting"]
Task = Literal["caption", "vqa", "count", "position", "relation", "ground", "region", "digit", "classify"]
Partition = Literal["pathological", "dirichlet", "pachinko", "style", "task", "task_style", "domain"]
Name = Literal[
    "scenes",
    "digits",
    "folder",
    "instructions",
    "caltech101",
    "dtd",
    "flowers102",
    "food101",
    "oxford_pets",
    "cifar10",
    "cifar100",
    "domainnet",
    "office_caltech10",
]
IMAGE_SETS: Final = get_args(Name)[4:]
"""Public data sets, read from a local folder."""


class DataConfig(BaseModel):
    """The federated data. Of the embedded, a client has one style; one task or, with partition `style`, all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(
        "scenes",
        description="scenes: rendered; digits: scikit-learn's; folder: your own; instructions: what sources names;"
        " others: the public data set of that name, for task classify; folder and these lie under path",
    )
    path: str | None = Field(
        None,
        description="folder: one sub-folder a client, see train/data/folder.py, where the other fields do not count;"
        " public data sets: the root folder, see train/data/readers",
    )
    sources: tuple[Source, ...] = Field(
        (),
        description="instructions: a list of {format, path, clients, …}, see train/data/sources.py; of the other fields"
        " only train_per_client, val_per_client and test_per_client count",
    )
    clients: Annotated[int, Field(ge=1, le=1000, description="number of clients")] = 4
    partition: Partition = Field(
        "style",
        description="how clients differ: pathological (disjoint classes), dirichlet (class shares ~ Dirichlet(alpha)), "
        "pachinko (cifar100: super-classes ~ Dirichlet(alpha), classes in each ~ Dirichlet(beta)), style, task, "
        "task_style, domain (domainnet, office_caltech10: one domain a client; several clients of a domain divide its "
        "classes ~ Dirichlet(alpha))",
    )
    alpha: Annotated[float, Field(gt=0, description="concentration of the Dirichlet partitions; small = skewed")] = 0.3
    beta: Annotated[float, Field(gt=0, description="pachinko: concentration within a super-class")] = 10.0
    classes_per_client: Annotated[int, Field(ge=2)] | None = Field(
        10,
        description="classes a client has (task classify); null: partition pathological gives out all, evenly",
    )
    classes: tuple[str, ...] = Field((), description="public data sets: the classes to keep; all by default")
    candidates: Literal["own", "all"] = Field(
        "own", description="public data sets, partition pathological: classes a client tells apart, its own or all"
    )
    styles: tuple[Style, ...] = Field(
        ("sketch", "cartoon", "night", "inverted"), min_length=1, description="scenes: styles, given out in turn"
    )
    tasks: tuple[Task, ...] = Field(
        ("caption",), min_length=1, description="tasks, given out in turn (task, task_style) or mixed in every client"
    )
    task_styles: dict[Task, tuple[TaskStyle, ...]] = Field(
        {},
        description="scenes, partition task_style: the styles of each task, in place of tasks and styles, given out in"
        " turn; handwriting, for task digit, is scikit-learn's",
    )
    unseen_styles: dict[Task, TaskStyle] = Field(
        {}, description="for a task, a style that no client has for it; its clients are evaluated on it too"
    )
    unseen_tasks: tuple[Task, ...] = Field(
        (), description="tasks that no client has; rendered clients are evaluated on them too, in their own style"
    )
    unseen_per_client: Annotated[
        int, Field(ge=0, le=1_000_000, description="examples a client of the unseen style, and as many of unseen tasks")
    ] = 0
    colour: Literal["mixed", "one_per_client"] = Field(
        "mixed", description="scenes, task classify: one_per_client makes the shape decide"
    )
    train_per_client: Annotated[
        int, Field(ge=1, le=1_000_000, description="training examples a client, at most where data are finite")
    ] = 200
    val_per_client: Annotated[int, Field(ge=0, le=1_000_000, description="validation examples a client")] = 50
    test_per_client: Annotated[int, Field(ge=1, le=1_000_000, description="test examples a client")] = 100
    few_shot: Annotated[
        int | None,
        Field(
            ge=1,
            description="training examples a class instead of train_per_client; of public data drawn once and saved",
        ),
    ] = None

    @property
    def classify(self) -> bool:
        """Whether clients classify images (CLIP) rather than answer questions."""
        return "classify" in self.tasks

    @property
    def taught(self) -> dict[Task, tuple[TaskStyle, ...]]:
        """The styles of every task that is trained, where data are embedded and have no classes."""
        in_order = {task: self.task_styles[task] for task in TASKS if task in self.task_styles}
        return in_order or dict.fromkeys(self.tasks, self.styles)

    @model_validator(mode="after")
    def _path(self) -> "DataConfig":
        if (self.name in (*IMAGE_SETS, "folder")) != (self.path is not None):
            raise ValueError(
                f"path: found {self.path!r} with name {self.name!r}; path and the name 'folder' or that of a public"
                " data set need each other"
            )
        return self

    @model_validator(mode="after")
    def _sources(self) -> "DataConfig":
        if (self.name == "instructions") != bool(self.sources):
            raise ValueError(
                f"sources: found {len(self.sources)} with name {self.name!r}; sources and the name 'instructions' need"
                " each other"
            )
        if self.sources and self.classify:
            raise ValueError(f"tasks: found {list(self.tasks)}, instructions have the tasks of their sources")
        return self

    @model_validator(mode="after")
    def _tasks(self) -> "DataConfig":
        if self.classify and self.tasks != ("classify",):
            raise ValueError(f"tasks: found {list(self.tasks)}, 'classify' must be the only task")
        if self.name == "digits" and self.tasks not in (("classify",), ("digit",)):
            raise ValueError(f"tasks: found {list(self.tasks)}, digits allow ['classify'] or ['digit']")
        if self.name in IMAGE_SETS and not self.classify:
            raise ValueError(f"tasks: found {list(self.tasks)}, {self.name} allows ['classify'] alone")
        if self.few_shot is not None and not self.classify:
            raise ValueError(f"few_shot: found {self.few_shot}, it counts examples a class: tasks must be ['classify']")
        return self

    @model_validator(mode="after")
    def _partition(self) -> "DataConfig":
        if self.name in ("folder", "instructions"):
            return self
        allowed = _partitions(self.name)
        if self.partition not in allowed:
            listed = " or ".join(repr(partition) for partition in allowed)
            raise ValueError(f"partition: found {self.partition!r}, with name {self.name!r} allowed are {listed}")
        if self.name == "scenes" and not self.classify and self.partition in DIVIDES_CLASSES:
            raise ValueError(f"partition: found {self.partition!r}, which divides classes: tasks must be ['classify']")
        if self.partition == "domain" and self.clients % len(DOMAINS[self.name]):
            number = len(DOMAINS[self.name])
            raise ValueError(f"clients: found {self.clients}, {self.name} has {number} domains: allowed are multiples")
        return self

    @model_validator(mode="after")
    def _held_out(self) -> "DataConfig":
        check_tasks(self)
        return self

    @model_validator(mode="after")
    def _classes(self) -> "DataConfig":
        divided = self.partition == "pathological"
        if self.classes_per_client is None and not divided:
            raise ValueError(f"classes_per_client: null is for partition 'pathological', found {self.partition!r}")
        if self.candidates == "all" and not (divided and self.name in IMAGE_SETS):
            raise ValueError("candidates: 'all' is for public data sets with partition 'pathological'")
        if self.classes and self.name not in IMAGE_SETS:
            raise ValueError(f"classes: found {list(self.classes)} with name {self.name!r}, which has its own")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes: found {list(self.classes)}, each may be named once")
        pool = len(DIGITS) if self.name == "digits" else len(SHAPES)
        if self.name == "scenes" and self.colour == "mixed":
            pool *= len(COLOURS)
        if self.name in ("scenes", "digits") and self.classify and (self.classes_per_client or 0) > pool:
            raise ValueError(f"classes_per_client: found {self.classes_per_client}, at most {pool} exist here")
        return self


DIVIDES_CLASSES: Final = ("pathological", "dirichlet")


def _partitions(name: str) -> tuple[str, ...]:
    """The partitions that this data can have."""
    if name == "scenes":
        return (*DIVIDES_CLASSES, "style", "task", "task_style")
    more = {"cifar100": ("pachinko",)} | dict.fromkeys(DOMAINS, ("domain",))
    return (*DIVIDES_CLASSES, *more.get(name, ()))


TASKS = get_args(Task)
