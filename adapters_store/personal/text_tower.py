"""The text tower of an open_clip model, as learned prompts use it: embeddings in, one pooled feature a text out.

Letters: N texts, E prompts, C suffixes, P prefix and S suffix tokens, L = P + S, W width, D joint embedding width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adapters_store.personal.clip import Clip

END_POOLED = ("argmax", "eos")


@dataclass(frozen=True)
class TextTower:
    """A frozen text transformer. Where ``shares_prefix``, what texts begin with alike need be computed only once."""

    tower: Any
    tokenise: Any

    @property
    def context(self) -> int:
        """Positions the tower has."""
        return int(self.tower.positional_embedding.shape[0])

    @property
    def width(self) -> int:
        """W."""
        return int(self.tower.token_embedding.weight.shape[1])

    @property
    def pool(self) -> str:
        """Which token's output stands for the text: argmax and eos (the end token), first, last."""
        return str(getattr(self.tower, "pool_type", getattr(self.tower, "text_pool_type", "argmax")))

    @property
    def truncates(self) -> bool:
        """Whether what follows the end token changes nothing: causal attention, the end token's output taken."""
        mask = self.tower.attn_mask
        causal = mask is not None and bool((mask.isneginf() == torch.ones_like(mask).triu(1).bool()).all())
        return causal and self.pool in END_POOLED

    @property
    def shares_prefix(self) -> bool:
        """Whether ``suffixes`` computes this tower: it truncates, and is made of open_clip's plain residual blocks."""
        from open_clip.transformer import ResidualAttentionBlock

        return self.truncates and all(
            type(block) is ResidualAttentionBlock
            and type(block.attn) is nn.MultiheadAttention
            and block.attn.in_proj_weight is not None
            and not hasattr(block, "ln_1_kv")
            for block in self.tower.transformer.resblocks
        )

    def tokens(self, texts: Sequence[str]) -> Tensor:
        """(N, context) token ids."""
        tokens: Tensor = self.tokenise(list(texts)).to(self.tower.token_embedding.weight.device)
        return tokens

    def ends(self, tokens: Tensor) -> Tensor:
        """(N,) where each row of ``tokens`` has its end token, the way the tower itself looks for it."""
        if self.pool == "eos":
            end: int = self.tower.eos_id if hasattr(self.tower, "eos_id") else self.tower.text_eos_id
            return tokens.eq(end).int().argmax(dim=-1)
        return tokens.argmax(dim=-1)

    @torch.no_grad()
    def embed(self, tokens: Tensor) -> Tensor:
        """(…, W) embeddings of the token ids, without positions."""
        embedded: Tensor = self.tower.token_embedding(tokens)
        return embedded

    def encode(self, embedded: Tensor, ends: Tensor) -> Tensor:
        """(N, D) normalised features of whole texts (N, L, W); ends (N,): each one's end token."""
        length = embedded.shape[1]
        mask = self.tower.attn_mask
        x = embedded + self.tower.positional_embedding[:length]
        x = self.tower.transformer(x, attn_mask=None if mask is None else mask[:length, :length])
        at = {"first": torch.zeros_like(ends), "last": torch.full_like(ends, length - 1)}.get(self.pool, ends)
        return self._project(x[torch.arange(len(x), device=x.device), at])

    def suffixes(self, prefix: Tensor, suffix: Tensor, ends: Tensor) -> Tensor:
        """(E, C, D) what ``encode`` gives for every prefix (E, P, W) followed by every suffix (C, S, W).

        Attention is causal, so a prefix runs through the tower once and each suffix attends to its keys and values.
        ends (C,): each suffix's end token, counted from the suffix's start. Only where ``shares_prefix``.
        """
        (prefixes, p, width), (classes, s, _) = prefix.shape, suffix.shape
        position = self.tower.positional_embedding
        head = prefix + position[:p]
        tail = (suffix + position[p : p + s]).expand(prefixes, -1, -1, -1)
        # One row a token, those of the prefixes first: every frozen matrix is read once for all of them.
        rows = torch.cat([head.reshape(-1, width), tail.reshape(-1, width)])
        ended = prefixes * p + (ends + s * torch.arange(prefixes * classes, device=rows.device).view(-1, classes))
        *blocks, last = self.tower.transformer.resblocks
        for block in blocks:
            rows = _finish(block, rows, _attended(block, rows, (prefixes, p), (classes, s)))
        attended = _attended(last, rows, (prefixes, p), (classes, s))
        return self._project(_finish(last, rows[ended], attended[ended]))  # no other output is asked for

    def _project(self, pooled: Tensor) -> Tensor:
        """Normalised joint features (…, D) of pooled outputs (…, W)."""
        pooled = self.tower.ln_final(pooled)
        projection = self.tower.text_projection
        if projection is not None:
            pooled = projection(pooled) if isinstance(projection, nn.Linear) else pooled @ projection
        return F.normalize(pooled, dim=-1)


def text_tower(clip: Clip) -> TextTower:
    """The model's text tower. ValueError where learned prompts cannot enter it."""
    tower: Any = getattr(clip.model, "text", clip.model)
    parts = ("token_embedding", "positional_embedding", "transformer", "ln_final", "attn_mask")
    special = getattr(tower, "cls_emb", None) is not None or getattr(tower, "use_pad_mask", False)
    found = TextTower(tower, clip.tokenise)
    if special or not all(hasattr(tower, part) for part in parts) or found.pool not in (*END_POOLED, "first", "last"):
        raise ValueError(
            f"base: learned prompts need an open_clip text transformer without class token or padding mask; "
            f"found {type(tower).__name__}"
        )
    return found


def _attended(block: Any, rows: Tensor, prefixes: tuple[int, int], classes: tuple[int, int]) -> Tensor:
    """Attention's output (E·P + E·C·S, W), its heads side by side, for ``suffixes``' rows; prefixes (E, P), classes
    (C, S). A prefix attends to itself, a suffix to its prefix and to itself."""
    (e, p), (c, s) = prefixes, classes
    joint = F.linear(block.ln_1(rows), block.attn.in_proj_weight, block.attn.in_proj_bias)
    joint = joint.unflatten(-1, (3, block.attn.num_heads, -1))
    head = joint[: e * p].unflatten(0, (e, p)).permute(2, 0, 3, 1, 4)  # (3, E, heads, P, W / heads)
    tail = joint[e * p :].unflatten(0, (e * c, s)).permute(2, 0, 3, 1, 4)  # (3, E·C, heads, S, W / heads)
    keys, values = torch.cat([head[1:].repeat_interleave(c, 1), tail[1:]], 3)
    visible = torch.ones(s, p + s, dtype=torch.bool, device=rows.device).tril(p)
    of_head = F.scaled_dot_product_attention(head[0], head[1], head[2], is_causal=True)
    of_tail = F.scaled_dot_product_attention(tail[0], keys, values, attn_mask=visible)
    return torch.cat([each.transpose(1, 2).flatten(2).flatten(0, 1) for each in (of_head, of_tail)])


def _finish(block: Any, rows: Tensor, attended: Tensor) -> Tensor:
    """The block's output for these rows (…, W), once their attention is known."""
    rows = rows + block.ls_1(block.attn.out_proj(attended))
    out: Tensor = rows + block.ls_2(block.mlp(block.ln_2(rows)))
    return out
