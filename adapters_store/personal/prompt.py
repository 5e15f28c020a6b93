"""Class text features from a learned prompt on a frozen open_clip text tower (CoOp, Zhou et al. 2022).

Letters: C classes, M prompt vectors, W width of the text tower, L tokens, D joint embedding width.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adapters_store.personal.clip import Clip

CLASS_FIELD = "{class}"


class PromptedText:
    """Text features of ``[SOS] v_1 … v_M <suffix> [EOS]`` for every class, differentiable in the prompt v.

    The tower is causal and pooled at the end token, so tokens after the longest end token are left out: they change
    nothing.
    """

    def __init__(self, clip: Clip, class_names: Sequence[str], template: str, length: int) -> None:
        """Tokenises the suffix ``template`` (with ``{class}`` in it) for every class, to follow ``length`` vectors.

        Raises ValueError where the text tower is not a causal open_clip transformer or the prompt does not fit it.
        """
        tower: Any = getattr(clip.model, "text", clip.model)
        if getattr(tower, "attn_mask", None) is None or not hasattr(tower, "token_embedding"):
            raise ValueError("base: learned prompts need a causal open_clip text tower; this model has another kind")
        self.tower = tower
        device = clip.logit_scale.device
        tokens = clip.tokenise([template.replace(CLASS_FIELD, name) for name in class_names]).to(device)  # (C, context)
        ends = _end_positions(tokens, self.tower)
        longest = int(ends.max()) + 1
        context = self.tower.positional_embedding.shape[0]
        if length + longest > context:
            raise ValueError(
                f"prompt.length: {length} vectors and the longest class name ({longest} tokens with its start and end) "
                f"do not fit the text tower's {context} positions; at most {context - longest} are allowed"
            )
        with torch.no_grad():
            embedded = self.tower.token_embedding(tokens[:, :longest])  # (C, L - M, W)
        self.start, self.suffix = embedded[:, :1], embedded[:, 1:]
        self.ends = ends + length

    def features(self, prompt: Tensor) -> Tensor:
        """L2-normalised class features (C, D) of the prompt (M, W)."""
        classes = self.suffix.shape[0]
        x = torch.cat([self.start, prompt.expand(classes, -1, -1), self.suffix], dim=1)  # (C, L, W)
        length = x.shape[1]
        x = x + self.tower.positional_embedding[:length]
        x = self.tower.transformer(x, attn_mask=self.tower.attn_mask[:length, :length])
        pooled = self.tower.ln_final(x)[torch.arange(classes, device=x.device), self.ends]  # (C, W)
        projection = self.tower.text_projection
        if projection is not None:
            pooled = projection(pooled) if isinstance(projection, nn.Linear) else pooled @ projection
        return F.normalize(pooled, dim=-1)


def prompt_width(clip: Clip) -> int:
    """W, the width of one prompt vector."""
    tower: Any = getattr(clip.model, "text", clip.model)
    return int(tower.token_embedding.weight.shape[1])


def word_prompt(clip: Clip, words: str) -> Tensor:
    """The embeddings (M, W) of the words' own tokens, to start a prompt from."""
    tower: Any = getattr(clip.model, "text", clip.model)
    tokens = clip.tokenise([words]).to(clip.logit_scale.device)
    end = int(_end_positions(tokens, tower)[0])
    with torch.no_grad():
        embedded: Tensor = tower.token_embedding(tokens[0, 1:end])
    return embedded.clone()


def _end_positions(tokens: Tensor, tower: Any) -> Tensor:
    """Where each row (C, context) has its end token, the way the tower itself looks for it: (C,)."""
    pool = getattr(tower, "pool_type", getattr(tower, "text_pool_type", "argmax"))
    if pool == "argmax":
        return tokens.argmax(dim=-1)
    if pool == "eos":
        end: int = tower.eos_id if hasattr(tower, "eos_id") else tower.text_eos_id
        return tokens.eq(end).int().argmax(dim=-1)
    raise ValueError(f"base: the text tower pools by '{pool}'; learned prompts need 'argmax' or 'eos'")
