"""pFedPrompt (Guo et al., WWW 2023): PromptFL's prompt for all, and for each client a memory of its training images.

Scores are τ x·t_c + a · exp(−β (1 − x F_trainᵀ)) Y_train (docs/methods.md#pfedprompt); the memory is never uploaded.
It is published, for the serving host to use, only for clients that opted in; the others publish and are compared by the
global prompt.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import ClassVar, Final, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from adapters_store.personal.heads import MemoryHead
from adapters_store.versions.manifest import Trust
from train.data import ClientData, Example
from train.methods.contract import AveragingOptions, ClientInfo, Turn
from train.methods.promptfl import PromptFamilyOptions, PromptFL
from train.models.clip import MemoryClassifier, ResidentClip
from train.models.interfaces import Personal
from train.tensors import Tensors

WEIGHTS: Final = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
"""Values of a that are tried on a client's validation examples."""
SHARPNESS: Final = (1.0, 2.0, 5.5, 10.0, 20.0, 50.0)
"""Values of β that are tried."""
UNTUNED: Final = (1.0, 5.5)
"""a and β of a client without validation examples."""


class PFedPromptOptions(AveragingOptions, PromptFamilyOptions):
    name: Literal["pfedprompt"] = "pfedprompt"
    opt_in: Literal["all"] | tuple[str, ...] = Field(
        (), description="clients whose training features may be published to the serving host: all, or their ids"
    )


class PFedPrompt(PromptFL):
    name: ClassVar[str] = "pfedprompt"
    options: PFedPromptOptions
    trust: ClassVar[Trust] = Trust(
        aggregator=["prompt vectors after each round", "number of training examples", "class names"],
        serving_host=["prompt vectors", "class names", "training image features and labels of clients that opted in"],
        client_only=["images", "optimiser state", "training image features and labels of clients that did not opt in"],
    )

    def build(self, model: ResidentClip, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        if "memory.features" in state:
            return MemoryClassifier(model, client.class_names, state)
        return super().build(model, client, state, turn)

    def settle(self, model: ResidentClip, state: Tensors, data: ClientData) -> Tensors:
        """The client's memory (n, D), its labels, and the (a, β) that are best on its validation examples."""
        if self.options.opt_in != "all" and data.id not in self.options.opt_in:
            return state
        memory = {
            "memory.features": model.features(data.train).cpu(),
            "memory.labels": torch.tensor([example.label for example in data.train]),
            "memory.weights": torch.tensor(UNTUNED),
        }
        settled = {**state, **memory}
        if data.val:
            head = MemoryClassifier(model, data.class_names, settled).head()
            settled["memory.weights"] = torch.tensor(_tuned(head, model.features(data.val), data.val))
        return settled


@torch.no_grad()
def _tuned(head: MemoryHead, images: Tensor, val: Sequence[Example]) -> tuple[float, float]:
    """The (a, β) with the fewest wrong answers; of equals, the one with the smallest cross-entropy."""
    labels = torch.tensor([example.label for example in val], device=images.device)

    def errors(pair: tuple[float, float]) -> tuple[int, float]:
        logits = replace(head, weight=pair[0], sharpness=pair[1]).logits(images)
        return int((logits.argmax(1) != labels).sum()), float(F.cross_entropy(logits, labels))

    return min(product(WEIGHTS, SHARPNESS), key=errors)
