"""Where instruction data come from: an entry of `data.sources` in a configuration."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from train.section import Section

Format = Literal["llava_instruct", "coco_captions", "vqav2", "refcoco"]

TASKS: Final[dict[Format, str]] = {
    "llava_instruct": "instruct",
    "coco_captions": "caption",
    "vqav2": "vqa",
    "refcoco": "ground",
}
WORDINGS: Final[dict[Format, str]] = {
    "llava_instruct": "{}",
    "coco_captions": "Describe the image.",
    "vqav2": "{}",
    "refcoco": "Give the box of: {}",
}
"""How questions are put; `{}` is the data's own question or, of refcoco, expression."""


class Source(Section):
    """One data set of images with instructions, divided among clients of its own, which so have one task."""

    format: Format = Field(description="layout of the folder, see train/data/readers")
    path: str = Field(description="folder with the annotations; llava_instruct: or its JSON file")
    images: str | None = Field(None, description="folder of the images, where they are not in a usual place under path")
    clients: Annotated[int, Field(ge=1, le=1000, description="clients that divide the images")] = 1
    question: str | None = Field(None, description="wording of the questions; {} is the data's own question")
    task: str | None = Field(
        None, pattern=r"^[a-z][a-z0-9_]*$", description="llava_instruct: the clients' task, 'instruct' by default"
    )

    @property
    def asks(self) -> str:
        """The task of its examples."""
        return self.task or TASKS[self.format]

    def put(self, question: str) -> str:
        """The data's own question as it is asked."""
        return (self.question or WORDINGS[self.format]).replace("{}", question)

    def misfits(self) -> Iterator[str]:
        if self.task is not None and (self.format != "llava_instruct" or self.task in ("ground", "classify")):
            yield (
                f"task: found {self.task!r} with format {self.format!r}; llava_instruct alone has a task to name, any"
                " but 'ground' and 'classify'"
            )
        if self.question is not None and self.format != "coco_captions" and "{}" not in self.question:
            yield f"question: found {self.question!r}, which lacks {{}}, the place of the data's own question"
