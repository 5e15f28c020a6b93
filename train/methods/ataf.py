"""ATAF between two clients: one exchange, then one task vector turned towards the other and both fused.

A is the first in client order; its coordinates are kept (docs/methods.md#ataf).
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from train.merging.adapter import Adapter
from train.merging.ataf import ataf
from train.merging.ataf_alpha import choose_alpha
from train.methods.contract import Update
from train.methods.one_shot import OneShot, OneShotOptions


class ATAFOptions(OneShotOptions):
    name: Literal["ataf"] = "ataf"
    alpha: Annotated[float, Field(ge=0, le=1)] | Literal["jsd"] = Field(
        "jsd",
        description="α, the second client's share; jsd: the candidate whose predictions stay closest to both clients',"
        " of the anchors' images over all captions, or of what the clients' own models answer",
    )


class ATAF(OneShot):
    name: ClassVar[str] = "ataf"
    clients: ClassVar[int | None] = 2
    options: ATAFOptions

    def merge(self, model: Any, adapters: Sequence[Adapter], updates: Sequence[Update], seed: int) -> Adapter:
        if len(adapters) != 2:
            raise ValueError(f"clients: {len(adapters)} updates to merge, ataf fuses exactly 2")
        a, b = adapters
        return ataf(a, b, self._alpha(model, a, b, seed))

    def _alpha(self, model: Any, a: Adapter, b: Adapter, seed: int) -> float:
        if self.options.alpha != "jsd":
            return self.options.alpha
        logits = self.carrier.predictions(model, self.anchors(seed), a, b)
        return choose_alpha(logits(a), logits(b), lambda alpha: logits(ataf(a, b, alpha)))[0]
