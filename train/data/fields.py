"""The fields of a configuration's `data:` section, each by itself; what fits together is checked in config.py."""

from typing import Annotated, Final, Literal, get_args

from pydantic import Field

from train.data.sources import Source
from train.section import Section

Style = Literal[
    "flat", "photo", "texture", "sketch", "cartoon", "paint", "pixel", "stipple", "hatch", "night", "inverted"
]
TaskStyle = Literal[Style, "handwriting"]
Task = Literal["caption", "vqa", "count", "position", "relation", "ground", "region", "digit", "classify"]
TASKS: Final = get_args(Task)
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
    "office_home",
    "pacs",
]
IMAGE_SETS: Final = get_args(Name)[4:]
"""Public data sets, read from a local folder."""


class DataFields(Section):
    """The federated data. Of the embedded, a client has one style; one task or, with partition `style`, all."""

    name: Name = Field(
        "scenes",
        description="scenes: rendered; digits: scikit-learn's; folder: your own; instructions: what sources names;"
        " others: the public data set of that name, for task classify; folder and these lie under path",
    )
    path: str | None = Field(
        None,
        description="folder: one sub-folder a client, see train/data/clients/folder.py, where the other fields do not"
        " count; public data sets: the root folder, see train/data/readers",
    )
    shared: str | None = Field(
        None, description="folder: a folder of images that every client's lines may name besides those of its own"
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
        "task_style, domain (domainnet, office_caltech10, office_home, pacs: one domain a client; several clients of a "
        "domain divide its classes ~ Dirichlet(alpha))",
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
        {},
        description="for a task, a style that no client has for it; its clients are evaluated on it too (task classify"
        " with partition style: on equal examples where they have equal classes)",
    )
    unseen_domain: str | None = Field(
        None, description="partition domain: a domain that no client has; all are evaluated on the same images of it"
    )
    unseen_tasks: tuple[Task, ...] = Field(
        (), description="tasks that no client has; rendered clients are evaluated on them too, in their own style"
    )
    unseen_per_client: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000,
            description="examples a client of the unseen style or domain, and as many of unseen tasks",
        ),
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
