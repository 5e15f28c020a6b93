"""Class text features from a learned prompt on a frozen open_clip text tower (CoOp, Zhou et al. 2022).

Letters: C classes, M prompt vectors, W width of the text tower, L tokens, D joint embedding width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from adapters_store.personal.clip import Clip
from adapters_store.personal.text_tower import text_tower

CLASS_FIELD = "{class}"


class PromptedText:
    """Text features of ``[SOS] v_1 … v_M <suffix> [EOS]`` for every class, differentiable in the prompt v."""

    def __init__(self, clip: Clip, class_names: Sequence[str], template: str, length: int) -> None:
        """Tokenises the suffix ``template`` (with ``{class}`` in it) for every class, to follow ``length`` vectors.

        Raises ValueError where the text tower is none that prompts can enter, or the prompt does not fit it.
        """
        self.tower, self.joint_width = text_tower(clip), clip.joint_width
        tokens = self.tower.tokens([template.replace(CLASS_FIELD, name) for name in class_names])  # (C, context)
        a, b = self.tower.tokens(["a", "b"])
        starts = int(a[0] == b[0])  # 1 where every text begins with a start token
        ends = self.tower.ends(tokens)
        longest = int(ends.max()) + 1
        if length + longest > self.tower.context:
            raise ValueError(
                f"prompt.length: {length} vectors and the longest class name ({longest} tokens with its start and end) "
                f"do not fit the text tower's {self.tower.context} positions; "
                f"at most {self.tower.context - longest} are allowed"
            )
        self.shares_prefix = self.tower.shares_prefix
        kept = longest if self.tower.truncates else self.tower.context - length
        embedded = self.tower.embed(tokens[:, :kept])
        self.start, self.suffix = embedded[:1, :starts], embedded[:, starts:]
        self.ends = ends - starts  # counted from the suffix's start

    def features(self, prompts: Tensor) -> Tensor:
        """L2-normalised class features (…, C, D) of prompts (…, M, W).

        The shared prefix [SOS] v is encoded once for all classes where the tower allows it (``TextTower``).
        """
        if not self.shares_prefix:
            return self.plain_features(prompts)
        each = prompts.reshape(-1, *prompts.shape[-2:])
        prefix = torch.cat([self.start.expand(len(each), -1, -1), each], dim=1)
        features = self.tower.suffixes(prefix, self.suffix, self.ends)
        return features.reshape(*prompts.shape[:-2], *features.shape[1:])

    def plain_features(self, prompts: Tensor) -> Tensor:
        """What ``features`` returns, every class's whole text encoded on its own."""
        each = prompts.reshape(-1, *prompts.shape[-2:])
        whole = [self._whole(prompt) for prompt in each]
        ends = self.ends + self.start.shape[1] + prompts.shape[-2]
        none = prompts.new_zeros(0, len(ends), self.joint_width)
        features = torch.stack([self.tower.encode(x, ends) for x in whole]) if whole else none
        return features.reshape(*prompts.shape[:-2], *features.shape[1:])

    def _whole(self, prompt: Tensor) -> Tensor:
        """(C, L, W)"""
        classes = len(self.suffix)
        return torch.cat([self.start.expand(classes, -1, -1), prompt.expand(classes, -1, -1), self.suffix], dim=1)


def prompt_width(clip: Clip) -> int:
    """W, the width of one prompt vector."""
    return text_tower(clip).width


def word_prompt(clip: Clip, words: str) -> Tensor:
    """The embeddings (M, W) of the words' own tokens, to start a prompt from."""
    tower = text_tower(clip)
    tokens = tower.tokens([words, "a", "b"])
    starts = int(tokens[1, 0] == tokens[2, 0])
    return tower.embed(tokens[0, starts : int(tower.ends(tokens)[0])]).clone()
