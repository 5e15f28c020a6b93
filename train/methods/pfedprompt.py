"""pFedPrompt (Guo et al., WWW 2023): PromptFL's prompt for all, and for each client a memory of its training images.

Scores are τ x·t_c + a · exp(−β (1 − x F_trainᵀ)) Y_train (METHODS §1); the memory is never uploaded. It is published,
for the serving host to use, only for clients that opted in; the others publish and are compared by the global prompt.
"""

from collections.abc import Sequence
from typing import ClassVar, Final, Literal

import torch
import torch.nn.functional as F
from pydantic import Field

from adapters_store.manifest import Trust
from train.data import ClientData, Example
from train.methods.base import ClientInfo, Personal, Turn
from train.methods.promptfl import PromptFamilyOptions, PromptFL
from train.models.clip import MemoryClassifier, ResidentClip
from train.tensors import Tensors

WEIGHTS: Final = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0)
"""Values of a that are tried on a client's validation examples."""
SHARPNESS: Final = (1.0, 2.0, 5.5, 10.0, 20.0, 50.0)
"""Values of β that are tried."""
UNTUNED: Final = (1.0, 5.5)
"""a and β of a client without validation examples."""


class PFedPromptOptions(PromptFamilyOptions):
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
        }
        tried = {pair: {**state, **memory, "memory.weights": torch.tensor(pair)} for pair in _pairs(data.val)}
        return min(tried.values(), key=lambda one: _errors(MemoryClassifier(model, data.class_names, one), data.val))


def _pairs(val: Sequence[Example]) -> list[tuple[float, float]]:
    return [(a, beta) for a in WEIGHTS for beta in SHARPNESS] if val else [UNTUNED]


@torch.no_grad()
def _errors(classifier: MemoryClassifier, val: Sequence[Example]) -> tuple[int, float]:
    """Wrong answers, and the mean cross-entropy that decides between equals."""
    if not val:
        return 0, 0.0
    logits = classifier.head().logits(classifier.resident.features(val))
    labels = torch.tensor([example.label for example in val], device=logits.device)
    return int((logits.argmax(1) != labels).sum()), float(F.cross_entropy(logits, labels))
