"""The model that merging asks: SAP's gradients on anchors, their captions' loss, and the α of ATAF."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from adapters_store.bases.llava import KIND, find_llava, model_type
from adapters_store.paths import resolve
from adapters_store.personal.vision_lora import check_vision_fit, weight_of
from train.data import Example
from train.data.anchors import AnchorOptions, Family, anchors
from train.lowrank import Factors
from train.merge.options import MergeOptions
from train.merging.adapter import Adapter, write_adapter
from train.merging.anchored import anchored
from train.merging.ataf import ataf
from train.merging.ataf_alpha import choose_alpha
from train.merging.sap import sap, sap_delta
from train.models.alignment_gradients import alignment_gradients
from train.models.answers import answer_logits, answers, delta_gradients, factor_gradients, predictions
from train.models.captions import Captions
from train.models.clip import ResidentClip
from train.models.mllm import Mllm
from train.tensors import generator

Chosen = tuple[float, dict[float, float]]


class AskedModel:
    """A base with its anchors, on the GPU where there is one. Raises ValueError where it is no LLaVA and no CLIP."""

    def __init__(self, options: MergeOptions) -> None:
        assert options.base is not None
        self.options = options
        folder = resolve(options.base)
        self.model: Mllm | ResidentClip
        if options.pretrained is not None or (folder / "open_clip_config.json").is_file():
            source = folder if folder.is_dir() else options.base
            self.model = ResidentClip(options.base, source, device(), pretrained=options.pretrained)
        else:
            folder = find_llava(options.base)
            check_kind(folder, "--base", "a LLaVA's or an open_clip model's")
            if options.method == "anchored":
                raise ValueError(
                    f"--base: {folder} is a LLaVA's, method anchored merges LoRAs of a CLIP's vision tower"
                )
            self.model = Mllm(options.base, folder, load_in_4bit=options.load_in_4bit, device=device())
        self.anchors = read_anchors(options, self.model.family)

    def sap(self, adapters: Sequence[Adapter], rank: int) -> dict[str, Factors]:
        """SAP in the options' space, recompressed to ``rank`` where that is the products'."""
        ratio, scope, rescale = self.options.ratio, self.options.scope, self.options.rescale
        if self.options.space == "delta":
            dense = [self.delta_gradients(adapter) for adapter in adapters]
            return sap_delta(adapters, dense, rank=rank, ratio=ratio, scope=scope, rescale=rescale)
        gradients = [self.gradients(adapter) for adapter in adapters]
        return sap(adapters, gradients, ratio=ratio, scope=scope, rescale=rescale)

    def gradients(self, adapter: Adapter) -> dict[str, Factors]:
        """∂L_align/∂(B, A) at this adapter, by module."""
        if isinstance(self.model, ResidentClip):
            return alignment_gradients(self.model, write_adapter(adapter), 1.0, self.anchors, "factors")
        return factor_gradients(self.model, adapter, self.anchors)

    def delta_gradients(self, adapter: Adapter) -> dict[str, torch.Tensor]:
        """∂L_align/∂(BA) (d_out, d_in) at this adapter, by module."""
        if isinstance(self.model, ResidentClip):
            return alignment_gradients(self.model, write_adapter(adapter), 1.0, self.anchors, "delta")
        return delta_gradients(self.model, adapter, self.anchors)

    def anchored(self, adapters: Sequence[Adapter]) -> dict[str, Factors]:
        """The merge whose coefficients the corrupted anchors' captions ask for; family clip."""
        assert isinstance(self.model, ResidentClip)
        captions, random = self._captions(self.model, adapters[0]), generator(self.options.seed, "corrupt")
        steps, lr, gain = self.options.steps, self.options.lr, self.options.gain
        return anchored(adapters, partial(captions.loss, random=random), steps=steps, lr=lr, gain=gain)[0]

    def alpha(self, a: Adapter, b: Adapter) -> Chosen:
        """ATAF's α for two adapters and S of every candidate."""
        logits: Callable[[Adapter], torch.Tensor]
        if isinstance(self.model, ResidentClip):
            logits = self._captions(self.model, a).logits
        else:
            logits = predictions(self.model, self.anchors, a, b)
        return choose_alpha(logits(a), logits(b), lambda alpha: logits(ataf(a, b, alpha)))

    def _captions(self, model: ResidentClip, adapter: Adapter) -> Captions:
        check_vision_fit(model.clip, {weight_of(module): factors for module, factors in adapter.items()})
        return Captions(model, self.anchors)


def alpha_of_models(aligned: Path, options: MergeOptions) -> Chosen:
    """ATAF's α for the options' two full LLaVAs; ``aligned``: with α = 1, so that W(α) = (1 − α) W_A + α W_aligned.

    Two of the models are in memory at a time, in float32.
    """
    a, b = options.adapters
    anchors = read_anchors(options, "mllm")

    def load(folder: Path) -> Mllm:
        return Mllm(str(folder), folder, load_in_4bit=False, device=device())

    model, other = load(a), load(b)
    examples = (*answers(model, anchors), *answers(other, anchors))  # unlabelled: what the two say themselves
    logits_a, logits_b = answer_logits(model, examples), answer_logits(other, examples)
    del other
    return choose_alpha(logits_a, logits_b, _between(model, load(aligned), examples))


def _between(model: Mllm, aligned: Mllm, examples: Sequence[Example]) -> Callable[[float], torch.Tensor]:
    """Moves ``model`` along the line to ``aligned``, to ever larger α, and answers there."""
    ends = dict(aligned.model.named_parameters())
    at = 0.0

    @torch.no_grad()
    def logits(alpha: float) -> torch.Tensor:
        nonlocal at
        for name, parameter in model.model.named_parameters():
            parameter.lerp_(ends[name], (alpha - at) / (1 - at))
        at = alpha
        return answer_logits(model, examples)

    return logits


def read_anchors(options: MergeOptions, family: Family) -> tuple[Example, ...]:
    """The anchors that the options name."""
    if options.anchors == "embedded":
        chosen = AnchorOptions(count=options.anchor_count)
    else:
        coco = any(resolve(options.anchors).glob("annotations/captions_*.json"))
        source: Literal["coco", "folder"] = "coco" if coco else "folder"
        chosen = AnchorOptions(source=source, path=options.anchors, count=options.anchor_count)
    try:
        return anchors(chosen, family, options.seed)
    except ValueError as error:  # which names a field of a federation's config
        said = str(error).replace("anchors.count:", "--anchor-count:").replace("anchors.path:", "--anchors:")
        raise ValueError(said) from None


def check_kind(folder: Path, option: str, allowed: str) -> None:
    """Raises ValueError, in one sentence that says which folders are ``allowed``, where this one holds no LLaVA."""
    if (kind := model_type(folder)) != KIND:
        raise ValueError(f"{option}: {folder} must be {allowed} folder, its kind is {kind}")


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
