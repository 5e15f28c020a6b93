"""SAP, semantically anchored pruning: one-shot federated domain generalisation (its notes; docs/methods.md#sap).

The server asks of every entry of every client's LoRA how much a loss on a few public anchors depends on it, keeps the
share 1 − ρ on which it depends most, and takes the exact mean of what is left, p_k = 1/K.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

from pydantic import Field
from torch import Tensor

from train.merging.adapter import Adapter
from train.merging.pruning import Rescale, Space
from train.merging.sap import RATIO, sap, sap_delta
from train.merging.selection import Scope
from train.methods.contract import Update
from train.methods.one_shot import OneShot, OneShotOptions


class SAPOptions(OneShotOptions):
    name: Literal["sap"] = "sap"
    ratio: float = Field(RATIO, ge=0, le=1, description="ρ, the share of entries that are masked, of lowest saliency")
    scope: Scope = Field("global", description="count ⌊ρ n⌋ over all entries, or within each tensor")
    space: Space = Field("factors", description="mask A and B, or their product, which needs rank")
    rescale: Rescale = Field(
        "none", description="norm: keep each layer's norm; robust: RobustMerge's scale of rows by what was masked"
    )

    def misfits(self) -> Iterator[str]:
        yield from super().misfits()
        if self.space == "delta" and self.rank is None:
            yield "rank: found null with method.space 'delta', which needs a rank to be served at"


class SAP(OneShot):
    name: ClassVar[str] = "sap"
    options: SAPOptions

    def merge(self, model: Any, adapters: Sequence[Adapter], updates: Sequence[Update], seed: int) -> Adapter:
        options, anchors = self.options, self.anchors(seed)
        gradients = [self.carrier.gradients(model, update.tensors, anchors, options.space) for update in updates]
        if options.space == "factors":
            of_factors = cast(list[Adapter], gradients)
            return sap(adapters, of_factors, ratio=options.ratio, scope=options.scope, rescale=options.rescale)
        assert options.rank is not None
        of_products = cast(list[Mapping[str, Tensor]], gradients)
        return sap_delta(
            adapters,
            of_products,
            rank=options.rank,
            ratio=options.ratio,
            scope=options.scope,
            rescale=options.rescale,
        )
