"""What is said of one picture: its classes by probability.

Letters: B images, C classes, E experts, D joint embedding width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from adapters_store.personal.heads import Head, MixtureHead
from serve.errors import GatewayError


@dataclass(frozen=True)
class ClassScores:
    """Every class with its probability, the most probable first; they add up to 1.

    ``experts``: of a version with a gate, each expert's attention weight for the first class, mean over the heads.
    They add up to 1 too, and the client's own prompt comes first.
    """

    classes: list[tuple[str, float]]
    experts: list[tuple[str, float]] | None = None

    def body(self, top_k: int) -> dict[str, Any]:
        """The fields of the answer."""
        top = [{"class_name": name, "probability": probability} for name, probability in self.classes[:top_k]]
        experts = [{"id": name, "weight": weight} for name, weight in self.experts or ()]
        return {"top": top, "experts": experts} if experts else {"top": top}


@torch.inference_mode()
def class_scores(head: Head, class_names: Sequence[str], features: Tensor, device: torch.device) -> ClassScores:
    """What the head says of an image with these features (D,); the head is on ``device``."""
    images = features[None].to(device)
    if not isinstance(head, MixtureHead):
        return ClassScores(_ranked(class_names, head.logits(images)[0]))
    logits, attention = head.explained(images)
    weights = attention[0, int(logits.argmax())].tolist()
    return ClassScores(_ranked(class_names, logits[0]), list(zip(head.experts, weights, strict=True)))


def _ranked(class_names: Sequence[str], logits: Tensor) -> list[tuple[str, float]]:
    """Names and probabilities by falling score (C,); not by probability, since the softmax rounds two scores to one.

    500 where a score is not finite.
    """
    if not bool(torch.isfinite(logits).all()):
        raise GatewayError(500, "this version's class scores of this picture are not finite; there is no answer")
    scores, probabilities = logits.tolist(), logits.softmax(0).tolist()
    return [(class_names[c], probabilities[c]) for c in sorted(range(len(scores)), key=lambda c: -scores[c])]
