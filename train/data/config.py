"""What data a federation holds: the `data:` section of a configuration."""

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from train.data.vocabulary import COLOURS, DIGITS, SHAPES

Style = Literal[
    "flat", "photo", "texture", "sketch", "cartoon", "paint", "pixel", "stipple", "hatch", "night", "inverted"
]
Task = Literal["caption", "vqa", "count", "position", "relation", "ground", "region", "digit", "classify"]
Partition = Literal["pathological", "dirichlet", "style", "task", "task_style"]


class DataConfig(BaseModel):
    """The federated data. Of the embedded, a client has one style; one task or, with partition `style`, all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["scenes", "digits", "folder"] = Field(
        "scenes", description="scenes: rendered; digits: scikit-learn's; folder: your own, under path"
    )
    path: str | None = Field(
        None, description="folder: one sub-folder a client, see train/data/folder.py; the other fields do not count"
    )
    clients: Annotated[int, Field(ge=1, le=1000, description="number of clients")] = 4
    partition: Partition = Field(
        "style",
        description="how clients differ: pathological (disjoint classes), dirichlet (class shares ~ Dirichlet(alpha)), "
        "style, task, task_style",
    )
    alpha: Annotated[float, Field(gt=0, description="concentration of the Dirichlet partition; small = skewed")] = 0.3
    classes_per_client: Annotated[int, Field(ge=2, description="classes a client has (task classify)")] = 10
    styles: tuple[Style, ...] = Field(
        ("sketch", "cartoon", "night", "inverted"), min_length=1, description="scenes: styles, given out in turn"
    )
    tasks: tuple[Task, ...] = Field(
        ("caption",), min_length=1, description="tasks, given out in turn (task, task_style) or mixed in every client"
    )
    colour: Literal["mixed", "one_per_client"] = Field(
        "mixed", description="scenes, task classify: one_per_client makes the shape decide"
    )
    train_per_client: Annotated[int, Field(ge=1, le=100_000, description="training examples a client")] = 200
    val_per_client: Annotated[int, Field(ge=0, le=100_000, description="validation examples a client")] = 50
    test_per_client: Annotated[int, Field(ge=1, le=100_000, description="test examples a client")] = 100
    few_shot: Annotated[
        int | None, Field(ge=1, description="training examples a class instead of train_per_client")
    ] = None

    @property
    def classify(self) -> bool:
        """Whether clients classify images (CLIP) rather than answer questions."""
        return "classify" in self.tasks

    @model_validator(mode="after")
    def _consistent(self) -> "DataConfig":
        if (self.name == "folder") != (self.path is not None):
            raise ValueError(
                f"path: found {self.path!r} with name {self.name!r}; path and name 'folder' need each other"
            )
        if self.classify and self.tasks != ("classify",):
            raise ValueError(f"tasks: found {list(self.tasks)}, 'classify' must be the only task")
        if self.name == "digits" and self.tasks not in (("classify",), ("digit",)):
            raise ValueError(f"tasks: found {list(self.tasks)}, digits allow ['classify'] or ['digit']")
        if self.name == "digits" and self.partition not in ("pathological", "dirichlet"):
            raise ValueError(f"partition: found {self.partition!r}, digits allow 'pathological' or 'dirichlet'")
        if self.name == "scenes" and not self.classify and self.partition in ("pathological", "dirichlet"):
            raise ValueError(f"partition: found {self.partition!r}, which divides classes: tasks must be ['classify']")
        if self.few_shot is not None and not self.classify:
            raise ValueError(f"few_shot: found {self.few_shot}, it counts examples a class: tasks must be ['classify']")
        pool = (
            len(DIGITS)
            if self.name == "digits"
            else len(SHAPES) * (1 if self.colour == "one_per_client" else len(COLOURS))
        )
        if self.classify and self.classes_per_client > pool:
            raise ValueError(f"classes_per_client: found {self.classes_per_client}, at most {pool} exist here")
        return self


TASKS = get_args(Task)
