"""CoOp (Zhou et al. 2022): every client learns a prompt of its own, alone; nothing is uploaded."""

from typing import ClassVar, Literal

from adapters_store.versions.manifest import Trust
from train.methods.local import Local
from train.methods.promptfl import PromptFamilyOptions, PromptFL, PromptFLOptions


class CoOpOptions(PromptFamilyOptions):
    name: Literal["coop"] = "coop"


class CoOp(Local):
    name: ClassVar[str] = "coop"
    family: Literal["mllm", "clip"] = "clip"
    trust: ClassVar[Trust] = Trust(
        serving_host=["personal prompt vectors", "class names"],
        client_only=["images", "labels", "image features", "optimiser state", "prompt vectors in training"],
    )

    def __init__(self, options: CoOpOptions) -> None:
        super().__init__(PromptFL(PromptFLOptions(prompt=options.prompt)))
