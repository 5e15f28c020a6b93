"""Stage two: the embedded LLaVA, a small Llama that reads the frozen tower's patches through a two-layer connector.

Letters: B sequences, L tokens, N = 64 patches, W tower width, H language width.
"""

from pathlib import Path
from random import Random
from typing import Any, Final

import torch
import torch.nn.functional as F
from open_clip import CLIP
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel

from train.data.world.questions import TASKS, TEXT_TURNS, Thing, Turn, ask, can_ask, things
from train.data.world.render import boxes, render
from train.data.world.scenes import sample_scenes
from train.data.world.vocabulary import PUBLIC_STYLES
from train.pretraining.clip import MODEL, encode, normalise, world_weights
from train.pretraining.loop import Budget, Stage
from train.pretraining.packing import IGNORED, PREFIX, TEXT_ONLY, Packed, TurnEncoder, check_template, pack
from train.pretraining.tokenizer import VOCABULARY, make_tokenizer

LANGUAGE: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": VOCABULARY - 1,
    "pad_token_id": 0,
}
"""Llama's configuration."""
LR: Final = 1.5e-3
WEIGHT_DECAY: Final = 0.05
AVERAGE_DECAY: Final = 0.998
TASK_WEIGHTS: Final = {
    "caption": 0.8,
    "vqa": 4.0,
    "count": 6.0,
    "position": 0.8,
    "relation": 3.5,
    "ground": 0.8,
    "region": 0.3,
    "digit": 1.5,
}
"""How often each task is asked about a scene that allows it."""
TURNS: Final = 16
"""Turns drawn for an image; as many as fit are kept."""


class Llava(nn.Module):
    """Connector and language model; what trains in this stage. Names follow the Hugging Face LLaVA's parts."""

    def __init__(self) -> None:
        super().__init__()
        width, hidden = MODEL["vision_cfg"]["width"], LANGUAGE["hidden_size"]
        self.linear_1 = nn.Linear(width, hidden)
        self.linear_2 = nn.Linear(hidden, hidden)
        self.language = LlamaModel(LlamaConfig(**(LANGUAGE | {"attn_implementation": "eager"})))

    def connect(self, patches: Tensor) -> Tensor:
        """(B, N, H) soft tokens of patch features (B, N, W)."""
        out: Tensor = self.linear_2(F.gelu(self.linear_1(patches)))
        return out

    def forward(self, patches: Tensor, packed: Packed) -> Tensor:
        """Mean cross-entropy of the answers' tokens."""
        embedded = self.language.embed_tokens(packed.tokens)
        soft = self.connect(patches).to(embedded.dtype)
        embedded = torch.cat([embedded[:, :TEXT_ONLY], soft, embedded[:, PREFIX:]], 1)
        mask = torch.where(packed.mask, 0.0, -1e4).to(torch.bfloat16)
        out = self.language(
            inputs_embeds=embedded, attention_mask=mask, position_ids=packed.positions, use_cache=False
        ).last_hidden_state
        answered = packed.targets != IGNORED
        logits = F.linear(out[answered], self.language.embed_tokens.weight)
        return F.cross_entropy(logits.float(), packed.targets[answered])


def make_llava(seed: int) -> Llava:
    """An untrained connector and language model."""
    torch.manual_seed(seed)
    return Llava()


def draw_turns(scene: list[Thing], random: Random) -> list[tuple[bool, Turn]]:
    """Turns about one scene, in any wording; now and then one that needs no image."""
    possible = [task for task in TASKS if can_ask(task, scene)]
    weights = [TASK_WEIGHTS[task] for task in possible]
    turns: list[tuple[bool, Turn]] = [
        (True, ask(task, scene, random, reword=True)[1:]) for task in random.choices(possible, weights, k=TURNS)
    ]
    if random.random() < 0.25:
        turns[0] = (False, random.choice(TEXT_TURNS))
    return list(dict.fromkeys(turns))


def make_batch(batch: int, seed: int, step: int, encoder: TurnEncoder) -> tuple[Tensor, Packed]:
    """Normalised images (B, 3, 64, 64) and their packed turns; depends on nothing but the arguments."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    random = Random(seed * 1_000_003 + step)
    scenes = sample_scenes(batch, generator, world_weights())
    style = torch.randint(len(PUBLIC_STYLES), (batch,), generator=generator)
    images, distance = render(scenes, style, generator)
    dialogues = [draw_turns(scene, random) for scene in things(scenes, boxes(distance))]
    return normalise(images), pack(dialogues, encoder)


def train_llava(
    clip: CLIP, budget: Budget, seed: int, folder: Path, device: torch.device, batch: int, *, resume: bool
) -> tuple[Llava, Stage]:
    """The trained connector and language model (averaged weights, fp32) over the frozen tower, and how long it took."""
    visual = clip.visual.to(device).eval().requires_grad_(False)
    model = make_llava(seed).to(device)
    tokenizer = make_tokenizer()
    encoder = TurnEncoder(tokenizer)
    check_template(tokenizer, encoder)
    stage = Stage("llava", model, folder, budget, LR, WEIGHT_DECAY, AVERAGE_DECAY)
    if resume:
        stage.resume()
    for step in stage.steps():
        images, packed = make_batch(batch, seed, step, encoder)
        packed = Packed(*(t.to(device) for t in (packed.tokens, packed.positions, packed.targets, packed.mask)))
        with torch.autocast(device.type, torch.bfloat16):
            with torch.no_grad():
                patches, _ = encode(visual, images.to(device))
            loss = model(patches, packed)
        stage.advance({"answer": loss})
    stage.average.copy_to_(model)
    return model.eval(), stage
