"""The vision tower of an open_clip ViT with low-rank updates beside its frozen weights, none of which is copied.

Letters: n images, L tokens, W width, d_in and d_out of a linear, r rank, D joint embedding width.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Factors = tuple[Tensor, Tensor]
"""(B (d_out, r), A (r, d_in)) of ΔW = BA, the scale in B."""
Delta = Factors | Tensor
"""The factors, or a dense ΔW (d_out, d_in)."""


def adapted(visual: Any, deltas: Mapping[str, Delta]) -> nn.Module:
    """The VisionTransformer with W + ΔW for every delta, by the weight's name in it; it shares everything else.

    Differentiable in the deltas.
    """
    only_class_token = visual.attn_pool is None and visual.pool_type == "tok"
    tower: nn.Module = copy.copy(visual)
    blocks = _Blocks(visual.transformer.resblocks, deltas, 1 if only_class_token else None)
    tower._modules = {**visual._modules, "transformer": blocks}
    return tower


class _Blocks(nn.Module):
    """The transformer's residual blocks; of the last one, outputs of the first ``kept`` tokens only."""

    def __init__(self, blocks: nn.ModuleList, deltas: Mapping[str, Delta], kept: int | None) -> None:
        super().__init__()
        self.blocks, self.deltas, self.kept = blocks, deltas, kept

    def forward(self, x: Tensor) -> Tensor:
        """(n, kept, W) of tokens (n, L, W)."""
        last = len(self.blocks) - 1
        for i, block in enumerate(self.blocks):
            x = self._block(f"transformer.resblocks.{i}.", block, x, self.kept if i == last else None)
        return x

    def _block(self, name: str, block: Any, x: Tensor, kept: int | None) -> Tensor:
        attn, first, second = block.attn, block.mlp.c_fc, block.mlp.c_proj

        def linear(end: str, weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
            return _linear(x, weight, bias, self.deltas.get(name + end))

        joint = linear("attn.in_proj_weight", attn.in_proj_weight, attn.in_proj_bias, block.ln_1(x))
        q, k, v = joint.unflatten(-1, (3, attn.num_heads, -1)).permute(2, 0, 3, 1, 4)  # each (n, heads, L, W / heads)
        attended = F.scaled_dot_product_attention(q[:, :, :kept], k, v).transpose(1, 2).flatten(2)
        out = linear("attn.out_proj.weight", attn.out_proj.weight, attn.out_proj.bias, attended)
        x = x[:, :kept] + block.ls_1(out)
        hidden = block.mlp.gelu(linear("mlp.c_fc.weight", first.weight, first.bias, block.ln_2(x)))
        done: Tensor = x + block.ls_2(linear("mlp.c_proj.weight", second.weight, second.bias, hidden))
        return done


def _linear(x: Tensor, weight: Tensor, bias: Tensor, delta: Delta | None) -> Tensor:
    """x (W + ΔW)ᵀ + bias, for x (…, d_in)."""
    if delta is None:
        return F.linear(x, weight, bias)
    if isinstance(delta, Tensor):
        return F.linear(x, weight + delta, bias)
    b, a = delta
    (d_out, d_in), rows = weight.shape, x.numel() // x.shape[-1]
    if not b.requires_grad and rows * (d_in + d_out) > d_in * d_out:  # fewer multiplications, and none of ∂L/∂W's
        return F.linear(x, torch.addmm(weight, b, a), bias)
    return F.linear(x, weight, bias) + x @ a.T @ b.T
