"""Anchored merging: one-shot federation whose server fits to its public anchors how much of each LoRA layer it takes.

What train/merging/anchored.py says; nothing else of the clients is needed than SAP needs.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from train.merging.adapter import Adapter
from train.merging.anchored import anchored
from train.methods.contract import Update
from train.methods.one_shot import OneShot, OneShotOptions
from train.models.captions import Captions
from train.tensors import generator


class AnchoredOptions(OneShotOptions):
    name: Literal["anchored"] = "anchored"
    family: Literal["clip"] = Field("clip", description="LoRA on the vision tower")
    steps: int = Field(40, ge=1, description="of Adam on the coefficients")
    lr: float = Field(0.05, gt=0, description="its learning rate; the coefficients start at 1, the exact mean")
    gain: float = Field(1.6, gt=0, description="multiplies the fitted coefficients; tuned on embedded styles")
    change: bool = Field(True, description="corrupt the anchors anew at every step")


class Anchored(OneShot):
    name: ClassVar[str] = "anchored"
    options: AnchoredOptions

    def merge(self, model: Any, adapters: Sequence[Adapter], updates: Sequence[Update], seed: int) -> Adapter:
        random = generator(seed, "corrupt") if self.options.change else None
        captions = Captions(model, self.anchors(seed))
        merged, _ = anchored(
            adapters,
            lambda adapter: captions.loss(adapter, random),
            steps=self.options.steps,
            lr=self.options.lr,
            gain=self.options.gain,
        )
        return merged
