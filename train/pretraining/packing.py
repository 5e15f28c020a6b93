"""Several turns about one image in one sequence: each sees the image and itself, at the positions it would have alone.

Letters: B sequences, L = LENGTH tokens, N = 64 image tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from train.data.world.questions import Turn
from train.pretraining.clip import PATCHES
from train.pretraining.tokenizer import CHAT_TEMPLATE, SPECIAL

LENGTH: Final = 224
"""Tokens of a packed sequence: start, user marker, 64 image tokens, then turns."""
IMAGE_TOKEN: Final = SPECIAL.index("<image>")
TEXT_ONLY: Final = 2
"""Positions before the first word of a turn without an image: start and user marker."""
PREFIX: Final = TEXT_ONLY + PATCHES
IGNORED: Final = -100
IMAGE: Final = 0
"""Segment of the image tokens; turns are 1, 2, …; start and user marker, which all see, −1; filling 999."""


@dataclass(frozen=True)
class Packed:
    tokens: Tensor
    """(B, L)"""
    positions: Tensor
    """(B, L)"""
    targets: Tensor
    """(B, L) the next token where it belongs to an answer, else −100."""
    mask: Tensor
    """(B, 1, L, L) what each token may look at."""


class TurnEncoder:
    """Token ids of turns, remembered: most turns come back."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}

    def words(self, text: str) -> list[int]:
        if text not in self._known:
            self._known[text] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self._known[text]

    def turn(self, turn: Turn) -> tuple[list[int], list[int]]:
        """Ids of what is asked, up to and with "ASSISTANT:", and of the answer, with the end token."""
        question, answer = turn
        asked = [*self.words(question), SPECIAL.index("ASSISTANT:")]
        return asked, [*self.words(answer), int(self.tokenizer.eos_token_id)]


def pack(dialogues: Sequence[Sequence[tuple[bool, Turn]]], encoder: TurnEncoder) -> Packed:
    """One sequence for each dialogue of (needs the image, turn); turns that no longer fit are left out."""
    rows = [_pack_row(dialogue, encoder) for dialogue in dialogues]
    tokens, positions, targets, segments = (torch.tensor(part) for part in zip(*rows, strict=True))
    own, other = segments[:, :, None], segments[:, None, :]
    blind = (segments >= TEXT_SEGMENT)[:, :, None]
    visible = (other == -1) | (own == other) | ((other == IMAGE) & ~blind)
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    return Packed(tokens, positions, targets, (visible & causal)[:, None])


TEXT_SEGMENT: Final = 500
"""Segments from here on do not see the image."""


def _pack_row(dialogue: Sequence[tuple[bool, Turn]], encoder: TurnEncoder) -> tuple[list[int], ...]:
    tokens = [1, SPECIAL.index("USER:"), *[IMAGE_TOKEN] * PATCHES]
    positions = list(range(PREFIX))
    targets = [IGNORED] * PREFIX
    segments = [-1, -1, *[IMAGE] * PATCHES]
    for number, (needs_image, turn) in enumerate(dialogue, 1):
        asked, answer = encoder.turn(turn)
        size, start = len(asked) + len(answer), PREFIX if needs_image else TEXT_ONLY
        if len(tokens) + size > LENGTH:
            continue
        tokens += asked + answer
        positions += range(start, start + size)
        targets += [*[IGNORED] * (len(asked) - 1), *answer, IGNORED]
        segments += [number if needs_image else TEXT_SEGMENT + number] * size
    filling = LENGTH - len(tokens)
    return (
        tokens + [0] * filling,
        positions + [0] * filling,
        targets + [IGNORED] * filling,
        segments + [999] * filling,
    )


def check_template(tokenizer: PreTrainedTokenizerFast, encoder: TurnEncoder) -> None:
    """Raises unless a packed turn is, token by token, what the chat template makes of it."""
    question, answer = "What shape is the red object?", "star"
    messages: Any = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]},
        {"role": "assistant", "content": answer},
    ]
    text = tokenizer.apply_chat_template(messages, chat_template=CHAT_TEMPLATE, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    asked, told = encoder.turn((question, answer))
    expected = [1, SPECIAL.index("USER:"), IMAGE_TOKEN, *asked, *told]
    if ids != expected:
        raise RuntimeError(f"the chat template makes {ids} of a turn, training {expected}")
