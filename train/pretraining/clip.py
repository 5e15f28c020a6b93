"""Stage one: the embedded CLIP, from nothing.

Besides matching images with captions, every patch names the glyph, colour and box of the object it lies on, from the
layer that the LLaVA will read: a small tower learns much faster so, and keeps places that the last layer would forget.
The heads for that are thrown away.

Letters: B images, N = 64 patches, M kept patches, W tower width, K = 3 objects.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from open_clip import CLIP
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from train.data.world.questions import caption, things
from train.data.world.render import boxes, render
from train.data.world.scenes import Scenes, pair_weights, sample_scenes, single_objects
from train.data.world.vocabulary import COLOURS, GLYPHS, IMAGE_SIZE, PUBLIC_STYLES, SHAPES, object_name
from train.pretraining.captions import PATTERNS
from train.pretraining.loop import Budget, Stage
from train.pretraining.tokenizer import VOCABULARY, make_tokenizer

PATCH: Final = 8
PATCHES: Final = (IMAGE_SIZE // PATCH) ** 2
MODEL: Final[dict[str, Any]] = {
    "embed_dim": 128,
    "vision_cfg": {"image_size": IMAGE_SIZE, "layers": 5, "width": 192, "patch_size": PATCH, "head_width": 64},
    "text_cfg": {
        "context_length": 32,
        "vocab_size": VOCABULARY,
        "hf_tokenizer_name": "tokenizer",
        "width": 128,
        "heads": 2,
        "layers": 3,
    },
}
"""open_clip's model configuration."""
MEAN: Final = (0.5, 0.5, 0.5)
STD: Final = (0.5, 0.5, 0.5)

FEATURE_LAYER: Final = -2
"""Whose output the LLaVA reads, counted as transformers does."""
LR: Final = 1.2e-3
WEIGHT_DECAY: Final = 0.05
AVERAGE_DECAY: Final = 0.998
KEPT: Final = 40
"""Patches seen by the tower in the first part of training (objects first): nearly twice as fast."""
WHOLE_FROM: Final = 0.7
"""Share of the budget after which it sees all of them."""
BACKGROUND: Final = len(GLYPHS)


@dataclass(frozen=True)
class Sizes:
    """Images a step: large single objects and scenes."""

    singles: int = 96
    scenes: int = 96


@dataclass(frozen=True)
class Batch:
    images: Tensor
    """(B, 3, 64, 64) normalised; the single objects come first."""
    pair: Tensor
    """(singles,) glyph · 8 + colour."""
    captions: list[str]
    """Of the scenes."""
    covered: Tensor
    """(B, N) share of each patch that its object covers."""
    glyph: Tensor
    """(B, N) glyph of the object on each patch, 20 = background."""
    colour: Tensor
    """(B, N)"""
    box: Tensor
    """(B, N, 4) box of that object, pixels."""

    def to(self, device: torch.device) -> "Batch":
        moved = [getattr(self, name).to(device) for name in ("covered", "glyph", "colour", "box")]
        return Batch(self.images.to(device), self.pair.to(device), self.captions, *moved)


def normalise(images: Tensor) -> Tensor:
    """What the tower is fed: (B, 3, S, S) in 0–1 → mean and standard deviation removed."""
    mean, std = (torch.tensor(values, device=images.device)[:, None, None] for values in (MEAN, STD))
    return (images - mean) / std


def world_weights() -> Tensor:
    """(C,) how often each pair occurs in scenes: mostly shapes, some digits."""
    shapes = pair_weights(list(range(len(SHAPES))), list(range(len(COLOURS))))
    digits = pair_weights(list(range(len(SHAPES), len(GLYPHS))), list(range(len(COLOURS))))
    return shapes + 0.35 * digits


def _soften(images: Tensor, rows: Tensor, generator: torch.Generator) -> Tensor:
    """A quarter of the given images, taken with a poor lens: as sharp as 10 to 20 pixels across."""
    images = images.clone()
    chosen = rows[torch.rand(len(rows), generator=generator) < 0.25]
    for part in chosen.split(8):
        edge = int(torch.randint(10, 21, (), generator=generator))
        coarse = F.interpolate(images[part], (edge, edge), mode="area")
        images[part] = F.interpolate(coarse, (IMAGE_SIZE, IMAGE_SIZE), mode="bicubic", align_corners=False)
    return images.clamp(0, 1)


def make_batch(sizes: Sizes, seed: int, step: int) -> Batch:
    """The batch of one step; depends on nothing else."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    pair = torch.randint(len(GLYPHS) * len(COLOURS), (sizes.singles,), generator=generator)
    single = single_objects(pair, generator)
    scene = sample_scenes(sizes.scenes, generator, world_weights())
    both = Scenes(**{f.name: torch.cat([getattr(single, f.name), getattr(scene, f.name)]) for f in fields(Scenes)})
    style = torch.randint(len(PUBLIC_STYLES), (len(both),), generator=generator)
    images, distance = render(both, style, generator)
    images = _soften(images, torch.nonzero(pair >= len(SHAPES) * len(COLOURS))[:, 0], generator)
    edges = boxes(distance)
    share, owner = F.avg_pool2d((distance + 0.5).clamp(0, 1), PATCH).flatten(2).max(1)
    on_object = share > 0.2
    glyph = torch.where(on_object, both.glyph.gather(1, owner), BACKGROUND)
    colour = torch.where(on_object, both.colour.gather(1, owner), len(COLOURS))
    box = edges.gather(1, owner[..., None].expand(-1, -1, 4))
    captions = [caption(scene) for scene in things(scene, edges[sizes.singles :])]
    return Batch(normalise(images), pair, captions, share, glyph, colour, box)


class Teacher(nn.Module):
    """The CLIP with the heads that name each patch's object."""

    def __init__(self, model: CLIP) -> None:
        super().__init__()
        width = MODEL["vision_cfg"]["width"]
        self.clip = model
        self.norm = nn.LayerNorm(width)
        self.glyph = nn.Linear(width, len(GLYPHS) + 1)
        self.colour = nn.Linear(width, len(COLOURS) + 1)
        self.box = nn.Linear(width, 4 * IMAGE_SIZE)


def _block(block: nn.Module, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """open_clip's residual block. Attention in plain products: for sequences this short several times the speed of
    PyTorch's fused kernel on a CPU (measured: 8 ms against 50 ms, forward and backward, batch 192, 41 tokens)."""
    b: Any = block
    attention = b.attn
    heads = attention.num_heads
    qkv = F.linear(b.ln_1(x), attention.in_proj_weight, attention.in_proj_bias)
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    weights = torch.softmax(scores if mask is None else scores + mask, -1)
    x = x + attention.out_proj((weights.to(v.dtype) @ v).transpose(1, 2).flatten(2))
    out: Tensor = x + b.mlp(b.ln_2(x))
    return out


def encode(visual: nn.Module, images: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Patch features (B, M, W) of the layer that the LLaVA reads, and image features (B, 128), not normalised.

    keep (B, M): which patches the tower sees; all of them where absent.
    """
    v: Any = visual
    tokens = v.conv1(images).flatten(2).transpose(1, 2)
    tokens = tokens + v.positional_embedding[1:]
    if keep is not None:
        tokens = tokens.gather(1, keep[..., None].expand(-1, -1, tokens.shape[-1]))
    start = (v.class_embedding + v.positional_embedding[0]).expand(len(images), 1, -1)
    x = v.ln_pre(torch.cat([start.to(tokens.dtype), tokens], 1))
    blocks = v.transformer.resblocks
    for block in blocks[: FEATURE_LAYER + 1]:
        x = _block(block, x)
    patches = x[:, 1:]
    for block in blocks[FEATURE_LAYER + 1 :]:
        x = _block(block, x)
    return patches, v.ln_post(x[:, 0]) @ v.proj


def encode_texts(model: CLIP, tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> Tensor:
    """(T, 128) unit text features; padded only to the longest text, which a causal tower does not notice."""
    ids = tokenizer(texts, padding=True, return_tensors="pt")["input_ids"].to(model.logit_scale.device)
    m: Any = model
    x = m.token_embedding(ids) + m.positional_embedding[: ids.shape[1]]
    mask = m.attn_mask[: ids.shape[1], : ids.shape[1]]
    for block in m.transformer.resblocks:
        x = _block(block, x, mask)
    x = m.ln_final(x)[torch.arange(len(ids)), ids.argmax(1)] @ m.text_projection
    return F.normalize(x.float(), dim=-1)


def _choose_patches(covered: Tensor, step: int) -> Tensor:
    """(B, KEPT) patches in order: those on objects first, then others at random."""
    generator = torch.Generator().manual_seed(step)
    score = torch.rand(covered.shape, generator=generator) + (covered > 0.02).float().cpu()
    return score.topk(KEPT, dim=1).indices.sort(dim=1).values.to(covered.device)


def _patch_losses(teacher: Teacher, patches: Tensor, batch: Batch, keep: Tensor | None) -> dict[str, Tensor]:
    """Cross-entropy of each patch's glyph and colour, and of the four edges of its box (blurred by a pixel)."""
    hidden = teacher.norm(patches)
    glyph, colour, box = batch.glyph, batch.colour, batch.box
    if keep is not None:
        glyph, colour = glyph.gather(1, keep), colour.gather(1, keep)
        box = box.gather(1, keep[..., None].expand(-1, -1, 4))
    on_object = glyph != BACKGROUND
    edges = teacher.box(hidden[on_object]).unflatten(-1, (4, IMAGE_SIZE)).float()
    line = torch.arange(IMAGE_SIZE, device=edges.device)
    target = torch.softmax(-0.5 * (line - box[on_object][..., None]).float().square(), -1)
    return {
        "glyph": F.cross_entropy(teacher.glyph(hidden).flatten(0, 1).float(), glyph.flatten()),
        "colour": 0.5 * F.cross_entropy(teacher.colour(hidden).flatten(0, 1).float(), colour.flatten()),
        "box": 0.15 * F.cross_entropy(edges.flatten(0, 1), target.flatten(0, 1)),
    }


def _class_texts(step: int) -> list[str]:
    """Captions of the 160 pairs, then of the 20 glyphs alone, all put in this step's way."""
    pattern = PATTERNS[step % len(PATTERNS)]
    pairs = [object_name(glyph, colour) for glyph in range(len(GLYPHS)) for colour in range(len(COLOURS))]
    return [pattern.format(name) for name in [*pairs, *GLYPHS]]


def _match_losses(
    model: CLIP, tokenizer: PreTrainedTokenizerFast, features: Tensor, batch: Batch, step: int
) -> dict[str, Tensor]:
    """Single objects against all captions of pairs and of glyphs; scenes against each other's captions."""
    singles, pairs = len(batch.pair), len(GLYPHS) * len(COLOURS)
    texts = encode_texts(model, tokenizer, [*_class_texts(step), *batch.captions])
    scale = model.logit_scale.exp().clamp(max=100)
    images = F.normalize(features.float(), dim=-1)
    own = scale * images[:singles] @ texts[: pairs + len(GLYPHS)].T
    scenes = scale * images[singles:] @ texts[pairs + len(GLYPHS) :].T
    same = torch.tensor([[a == b for b in batch.captions] for a in batch.captions], device=scenes.device)
    twins = same & ~torch.eye(len(same), dtype=torch.bool, device=scenes.device)
    scenes = scenes.masked_fill(twins, -1e4)
    index = torch.arange(len(scenes), device=scenes.device)
    return {
        "pair": F.cross_entropy(own[:, :pairs], batch.pair),
        "alone": 0.5 * F.cross_entropy(own[:, pairs:], batch.pair // len(COLOURS)),
        "scene": 0.25 * (F.cross_entropy(scenes, index) + F.cross_entropy(scenes.T, index)),
    }


def make_clip(seed: int) -> CLIP:
    """An untrained CLIP of the embedded size."""
    from open_clip.model import CLIPTextCfg, CLIPVisionCfg

    torch.manual_seed(seed)
    return CLIP(MODEL["embed_dim"], CLIPVisionCfg(**MODEL["vision_cfg"]), CLIPTextCfg(**MODEL["text_cfg"]))


def train_clip(
    budget: Budget, seed: int, folder: Path, device: torch.device, sizes: Sizes, *, resume: bool
) -> tuple[CLIP, Stage]:
    """The trained CLIP (averaged weights, fp32) and how long it took."""
    teacher = Teacher(make_clip(seed)).to(device)
    tokenizer = make_tokenizer()
    stage = Stage("clip", teacher, folder, budget, LR, WEIGHT_DECAY, AVERAGE_DECAY)
    if resume:
        stage.resume()
    for step in stage.steps():
        batch = make_batch(sizes, seed, step).to(device)
        keep = None if stage.share >= WHOLE_FROM else _choose_patches(batch.covered, step)
        with torch.autocast(device.type, torch.bfloat16):
            patches, features = encode(teacher.clip.visual, batch.images, keep)
            losses = _patch_losses(teacher, patches, batch, keep)
            losses |= _match_losses(teacher.clip, tokenizer, features, batch, step)
        stage.advance(losses)
    stage.average.copy_to_(teacher)
    return teacher.clip.eval(), stage
