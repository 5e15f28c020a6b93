"""What carries a one-shot method's LoRA, behind one surface: CLIP's vision tower, or the LLaVA's language model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Protocol, get_args

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from train.data import Example
from train.data.anchors import Family
from train.lowrank import Factors
from train.merging.adapter import A, Adapter
from train.merging.pruning import Space
from train.models.alignment_gradients import alignment_gradients
from train.models.answer_gradients import answer_gradients
from train.models.answers import predictions
from train.models.captions import Captions
from train.models.connected import mllm_artefact
from train.models.interfaces import Artefact, Personal
from train.models.lora import LoraOptions, LoraPersonal, adapt_, initial_lora
from train.models.vision_lora import (
    Target,
    VisionLoraOptions,
    VisionLoraPersonal,
    initial_vision_lora,
    vision_lora_artefact,
)
from train.tensors import Tensors

Gradients = Mapping[str, Factors] | Mapping[str, Tensor]


class CarriedLora(BaseModel):
    """The adapters every client trains."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rank: int = Field(8, ge=1, le=512, description="r of the update BA")
    alpha: int = Field(16, ge=1, description="numerator of the scale s = α/r")
    targets: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="which linears of a layer carry one; clip: in_proj, c_fc, c_proj (the default), out_proj;"
        " mllm: names such as q_proj, by default all",
    )

    @property
    def scale(self) -> float:
        """s = α/r."""
        return self.alpha / self.rank


class Carrier(Protocol):
    """One family's LoRA. Tensors have PEFT's names; their scale is the options', their rank may be any.

    ``linears``: which there are in a layer; none where that depends on the base.
    """

    linears: ClassVar[tuple[str, ...]]

    def __init__(self, lora: CarriedLora) -> None:
        """The LoRA that clients train."""

    def initial(self, model: Any, seed: int) -> Tensors:
        """A LoRA that leaves the base as it is."""

    def build(self, model: Any, class_names: Sequence[str], tensors: Tensors) -> Personal:
        """The LoRA in place on the base."""

    def artefact(
        self, role: Literal["personal", "global"], model: Any, class_names: Sequence[str], tensors: Tensors
    ) -> Artefact:
        """A version that holds it."""

    def gradients(self, model: Any, tensors: Tensors, anchors: Sequence[Example], space: Space) -> Gradients:
        """Of the anchors' loss (docs/methods.md#sap), by module: of factors (B, A) with s in B, or of their product."""

    def predictions(
        self, model: Any, anchors: Sequence[Example], a: Adapter, b: Adapter
    ) -> Callable[[Adapter], Tensor]:
        """(n, C) logits with an adapter in place: of each anchor's image over all captions, or of the tokens of what
        the model answers with ``a`` and with ``b``. Which caption or answer is an anchor's own does not matter."""


class VisionTower:
    """LoRA on CLIP's vision tower; classes are named by the zero-shot template."""

    linears: ClassVar[tuple[str, ...]] = get_args(Target)

    def __init__(self, lora: CarriedLora) -> None:
        self.options = VisionLoraOptions.model_validate(lora.model_dump(exclude_none=True))

    def initial(self, model: Any, seed: int) -> Tensors:
        return initial_vision_lora(model, self.options, seed)

    def build(self, model: Any, class_names: Sequence[str], tensors: Tensors) -> Personal:
        return VisionLoraPersonal(model, self.options.scale, class_names, tensors)

    def artefact(
        self, role: Literal["personal", "global"], model: Any, class_names: Sequence[str], tensors: Tensors
    ) -> Artefact:
        return vision_lora_artefact(role, model, class_names, tensors, self.options.scale)

    def gradients(self, model: Any, tensors: Tensors, anchors: Sequence[Example], space: Space) -> Gradients:
        return alignment_gradients(model, tensors, self.options.scale, anchors, space)

    def predictions(
        self, model: Any, anchors: Sequence[Example], a: Adapter, b: Adapter
    ) -> Callable[[Adapter], Tensor]:
        return Captions(model, anchors).logits


class LanguageModel:
    """LoRA on the LLaVA's language model."""

    linears: ClassVar[tuple[str, ...]] = ()

    def __init__(self, lora: CarriedLora) -> None:
        self.options = LoraOptions.model_validate(lora.model_dump(exclude_none=True))

    def initial(self, model: Any, seed: int) -> Tensors:
        return initial_lora(adapt_(model, self.options), seed)

    def build(self, model: Any, class_names: Sequence[str], tensors: Tensors) -> Personal:
        return LoraPersonal(model, self._of_rank(tensors), tensors)

    def artefact(
        self, role: Literal["personal", "global"], model: Any, class_names: Sequence[str], tensors: Tensors
    ) -> Artefact:
        return mllm_artefact(role, model, self._of_rank(tensors), tensors)

    def gradients(self, model: Any, tensors: Tensors, anchors: Sequence[Example], space: Space) -> Gradients:
        return answer_gradients(model, self._of_rank(tensors), tensors, anchors, space)

    def predictions(
        self, model: Any, anchors: Sequence[Example], a: Adapter, b: Adapter
    ) -> Callable[[Adapter], Tensor]:
        return predictions(model, anchors, a, b)

    def _of_rank(self, tensors: Tensors) -> LoraOptions:
        """The options at the tensors' rank and the same scale."""
        rank = next(len(tensor) for name, tensor in tensors.items() if name.endswith(A))
        alpha = self.options.alpha * rank / self.options.rank
        return self.options.model_copy(update={"rank": rank, "alpha": int(alpha) if alpha.is_integer() else alpha})


CARRIERS: Final[dict[Family, type[Carrier]]] = {"clip": VisionTower, "mllm": LanguageModel}
