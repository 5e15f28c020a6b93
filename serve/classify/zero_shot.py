"""Answers over class names that come with the request: a vision tower's own, without what a prompt has learned.

A learned prompt is not put before names it was not trained with: prompts fitted to one list of classes do worse on
new ones than a fixed template (Zhou et al., CVPR 2022, Table 1: 63.2 % against 74.2 % over eleven data sets).

Letters: C classes, D joint embedding width.
"""

import hashlib
import json
from collections.abc import Sequence

import torch
from torch import Tensor

from adapters_store.personal.clip import Clip
from adapters_store.personal.heads import TextHead
from adapters_store.personal.prompt import CLASS_FIELD
from adapters_store.personal.tensor_cache import TensorCache
from adapters_store.personal.text_tower import text_tower
from serve.pictures.batching import Batcher
from serve.settings import MIB, Settings

TEXTS_AT_ONCE = 64  # bounds the memory that a thousand long names take
Asked = tuple[Sequence[str], str]  # class names, and the template they are put into


class ZeroShot:
    """Heads made of class names, their text features computed in a thread of their own and remembered per owner."""

    def __init__(self, clip: Clip, settings: Settings) -> None:
        self._clip = clip
        self._tower = text_tower(clip)
        self._template = settings.zero_shot_template
        self._cache = TensorCache(settings.text_cache_mib * MIB)
        self._batcher = Batcher(self._encode, max_batch=1, max_wait_ms=0)  # one list at a time, in order of arrival

    async def head(self, class_names: Sequence[str], owner: str, template: str | None = None) -> TextHead:
        """The head over these classes, in another template than the gateway's where one is given.

        ValueError where a name is too long for the text tower.
        """
        asked = (tuple(class_names), self._template if template is None else template)
        key = (owner, hashlib.sha256(json.dumps(asked).encode()).digest())
        text = self._cache.get(key)
        if text is None:
            text = await self._batcher(asked)
            self._cache.put(key, text)
        return TextHead(self._clip.logit_scale, text)

    async def close(self) -> None:
        """Ends the thread."""
        await self._batcher.close()

    @torch.inference_mode()
    def _encode(self, lists: Sequence[Asked]) -> list[Tensor]:
        """(C, D) of every list of names."""
        return [
            torch.cat(
                [self._features(names[i : i + TEXTS_AT_ONCE], template) for i in range(0, len(names), TEXTS_AT_ONCE)]
            )
            for names, template in lists
        ]

    def _features(self, class_names: Sequence[str], template: str) -> Tensor:
        tower = self._tower
        tokens = tower.tokens([template.replace(CLASS_FIELD, name) for name in class_names])  # (C, context)
        full = tokens[:, -1] != tower.tokens([""])[:, -1]  # no padding left: the tokeniser may have cut the text
        if bool(full.any()):
            longest = class_names[int(full.nonzero()[0])]
            raise ValueError(
                f"the name {longest[:40] + '…' if len(longest) > 40 else longest!r} is too long for "
                f"the text tower, which takes fewer than {tower.context} tokens for name and template together"
            )
        ends = tower.ends(tokens)
        kept = int(ends.max()) + 1 if tower.truncates else tower.context
        return tower.encode(tower.embed(tokens[:, :kept]), ends)
