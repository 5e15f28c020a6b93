"""What the released pFedMoAP code computes, step by step, written anew: the slow side of the comparison.

Its schedule: every text keeps all of the tower's positions (77); each class's text is encoded whole, in every step; the
features of all non-local prompts are computed anew for each client when it gets them; every batch's images pass through
the image tower again in every step; the gate's query is repeated for every class. What it does not do here either:
augmentation (off, so that the losses can be compared), loading images (they are kept as pixels in memory), evaluation.

Letters: B images, C classes, E experts, L positions, W text width, D joint width, d gate width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from adapters_store.personal.clip import Clip
from adapters_store.personal.gate import HEADS, SCALE, gate_width
from adapters_store.personal.text_tower import text_tower
from bench.prompt_study.loop import WatchedPFedMoAP
from train.data import Example
from train.methods.contract import ClientInfo, Turn
from train.models.clip import SUFFIX_TEMPLATE, Classifier, Labelled, ResidentClip
from train.models.interfaces import Personal
from train.tensors import Tensors


class WholeText:
    """Class features from all of the tower's positions, every class on its own."""

    def __init__(self, clip: Clip, class_names: Sequence[str], length: int) -> None:
        self.tower = text_tower(clip).tower
        tokens = clip.tokenise([SUFFIX_TEMPLATE.replace("{class}", name) for name in class_names])
        embedded = self.tower.token_embedding(tokens.to(clip.logit_scale.device))
        self.start, self.suffix = embedded[:, :1], embedded[:, 1 : tokens.shape[1] - length]
        self.ends = text_tower(clip).ends(tokens) + length

    def __call__(self, prompt: Tensor) -> Tensor:
        """(C, D) L2-normalised, of a prompt (M, W)."""
        classes = len(self.start)
        x = torch.cat([self.start, prompt.expand(classes, -1, -1), self.suffix], dim=1)  # (C, L, W)
        x = self.tower.transformer(x + self.tower.positional_embedding, attn_mask=self.tower.attn_mask)
        x = self.tower.ln_final(x)
        features: Tensor = x[torch.arange(classes), self.ends] @ self.tower.text_projection
        return F.normalize(features, dim=-1)


class RepeatedGate(nn.Module):
    """Multi-head attention of queries (C, B, d) over keys and values (C, E, d); parameters named as in ``Gate``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, queries: Tensor, experts: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for layer, x in ((self.query, queries), (self.key, experts), (self.value, experts))
        )
        attention = (SCALE * query @ key.transpose(-2, -1)).softmax(-1)
        out: Tensor = self.output((attention @ value).transpose(1, 2).flatten(-2))
        return out


@dataclass(frozen=True)
class ReferenceHead:
    """λ τ x·t_c + τ ⟨pool(x), G(x, c)⟩, or τ x·t_c without experts."""

    scale: Tensor
    text: Tensor  # (C, D)
    others: Sequence[Tensor]  # each (C, d)
    gate: RepeatedGate | None
    mixing: float
    stride: int

    def logits(self, images: Tensor) -> Tensor:
        local = self.scale * images @ self.text.T
        if self.gate is None:
            return local
        pooled = images[:, :: self.stride]
        queries = pooled.repeat(len(self.text), 1, 1)
        experts = torch.stack([self.text[:, :: self.stride], *self.others]).permute(1, 0, 2)
        mixed = self.gate(queries, experts).permute(1, 2, 0)  # (B, d, C)
        return self.mixing * local + self.scale * torch.bmm(pooled.unsqueeze(1), mixed).squeeze(1)


@dataclass(frozen=True)
class EncodedEachTime:
    """Images as pixels (n, 3, size, size), encoded whenever a batch holds them."""

    resident: ResidentClip
    pixels: Tensor
    labels: Tensor

    def features(self, rows: Sequence[int]) -> Tensor:
        return self.resident.clip.image_features(self.pixels[list(rows)])


class ReferenceClassifier(Classifier):
    """A client's prompt and gate; the features of the prompts it was sent are computed here, for it alone."""

    def __init__(self, resident: ResidentClip, class_names: Sequence[str], state: Tensors, mixing: float) -> None:
        super().__init__(resident, class_names)
        self.mixing = mixing
        self.text = WholeText(resident.clip, class_names, state["prompt"].shape[0])
        self.prompt = nn.Parameter(state["prompt"].clone())
        self.parameters = {"prompt": self.prompt}
        joint = self.text.tower.text_projection.shape[1]
        width = gate_width(joint)
        self.stride = joint // width
        self.gate: RepeatedGate | None = None
        self.others: list[Tensor] = []
        if "others" in state:
            self.gate = RepeatedGate(width)
            self.gate.load_state_dict({n.removeprefix("gate."): t for n, t in state.items() if n.startswith("gate.")})
            self.parameters |= {f"gate.{name}": parameter for name, parameter in self.gate.named_parameters()}
            with torch.no_grad():
                self.others = [self.text(prompt)[:, :: self.stride] for prompt in state["others"]]

    def prepare(self, examples: Sequence[Example], augment: Generator | None = None) -> Labelled:
        labels = torch.tensor([example.label for example in examples])
        return EncodedEachTime(self.resident, self.resident.pixels([example.image for example in examples]), labels)

    def head(self) -> ReferenceHead:
        scale = self.resident.clip.logit_scale
        return ReferenceHead(scale, self.text(self.prompt), self.others, self.gate, self.mixing, self.stride)


class ReferencePFedMoAP(WatchedPFedMoAP):
    """The same method and the same draws, computed as above."""

    def build(self, model: ResidentClip, client: ClientInfo, state: Tensors, turn: Turn | None) -> Personal:
        self.moments.append([])
        return ReferenceClassifier(model, client.class_names, state, self.options.mixing)
