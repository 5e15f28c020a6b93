"""Whether the gateway says, token for token, what transformers and PEFT say over the 4-bit base of training."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from adapters_store.paths import resolve
from adapters_store.personal.connector import CONNECTOR, read_connector
from adapters_store.pictures.pixels import to_pixels
from adapters_store.pictures.transform import ImageTransform
from adapters_store.store import Store
from tests.floats import LLAVA_LOGITS, rounding
from tests.serve.live import LiveGateway
from train.models.mllm import load_llava

MAX_TOKENS = 24
IN_FLIGHT = 8  # requests at a time

Question = tuple[np.ndarray, str]  # (H, W, 3) uint8 and what is asked about it


@dataclass(frozen=True)
class Reference:
    """A client's published version on the base it was trained over, without anything of the gateway."""

    model: PeftModel
    tokenizer: PreTrainedTokenizerBase
    transform: ImageTransform
    template: str
    image_tokens: int

    def inputs(self, question: Question) -> dict[str, torch.Tensor]:
        """Token ids, mask and pixels of one question."""
        image, text = question
        content = [{"type": "image"}, {"type": "text", "text": text}]
        prompt = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            chat_template=self.template,
            add_generation_prompt=True,
            tokenize=False,
        )
        prompt = prompt.replace("<image>", "<image>" * self.image_tokens)
        tokens = self.tokenizer(prompt, add_special_tokens=False, return_tensors="pt")
        return {**tokens, "pixel_values": to_pixels(image, self.transform)[None]}

    @torch.inference_mode()
    def answer(self, question: Question) -> list[int]:
        """Greedy answer, the end token included."""
        inputs = self.inputs(question)
        output = self.model.generate(**inputs, max_new_tokens=MAX_TOKENS, do_sample=False)
        return [int(token) for token in output[0, inputs["input_ids"].shape[1] :]]

    @torch.inference_mode()
    def logits(self, question: Question, said: list[int]) -> torch.Tensor:
        """Logits (vocabulary,) of the token after ``said``."""
        inputs = self.inputs(question)
        ids = torch.cat([inputs["input_ids"], torch.tensor([said], dtype=torch.long)], dim=1)
        logits: torch.Tensor = self.model(
            input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=inputs["pixel_values"]
        ).logits[0, -1]
        return logits


class Connected(torch.nn.Module):
    """A version's connector where the base has its projector."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._connector = read_connector(load_file(folder / CONNECTOR))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Soft tokens (…, N, W) of features (…, N, V)."""
        return self._connector(features)


def reference(store: Store, client: str, version: str) -> Reference:
    """The version with plain ``PeftModel.from_pretrained`` on the NF4 base its manifest names, and its connector."""
    artefact = store.artefact(client, version)
    manifest = artefact.manifest
    folder = resolve(manifest.base.name)
    base = load_llava(folder, load_in_4bit=manifest.base.quantization == "nf4", dtype=torch.float32)
    if (artefact.path / CONNECTOR).exists():
        base.model.multi_modal_projector = Connected(artefact.path)
    model = PeftModel.from_pretrained(base, artefact.path).eval()
    tokens = int(base.config.image_seq_length)
    return Reference(model, _tokenizer(folder), manifest.image_transform, manifest.prompt_template, tokens)


def check_parity(gateway: LiveGateway, store: Store, client: str, questions: Sequence[Question]) -> None:
    """``check_parity_together`` of one client."""
    check_parity_together(gateway, store, {client: questions})


def check_parity_together(
    gateway: LiveGateway, store: Store, questions: Mapping[str, Sequence[Question]], in_flight: int = IN_FLIGHT
) -> None:
    """AssertionError for a difference that no tie of logits explains; ties are printed.

    Requests of all clients are in flight together, those that are taken one after the other being of different ones.
    """
    versions = {client: _live_version(store, client) for client in questions}
    longest = max(len(asked) for asked in questions.values())
    turns = [(client, i) for i in range(longest) for client, asked in questions.items() if i < len(asked)]

    def ask(turn: tuple[str, int]) -> list[int]:
        image, text = questions[turn[0]][turn[1]]
        model = f"{turn[0]}@{versions[turn[0]]}"
        served = gateway.ask(model, text, image, temperature=0, max_tokens=MAX_TOKENS, return_token_ids=True)
        found: list[int] = served["choices"][0]["token_ids"]
        return found

    with ThreadPoolExecutor(in_flight) as pool:
        answers = dict(zip(turns, pool.map(ask, turns), strict=True))
    unexplained = []
    for client, asked in questions.items():
        expected = reference(store, client, versions[client])
        for number, question in enumerate(asked):
            found, wanted = answers[client, number], expected.answer(question)
            if found != wanted:
                explanation, is_tie = explain(expected, question, found, wanted)
                print(f"{client} question {number}: {explanation}")
                if not is_tie:
                    unexplained.append(f"{client} question {number}: {explanation}")
    assert not unexplained, f"{len(unexplained)} of {len(turns)} answers differ: {unexplained[0]}"


def check_but_for_ties(
    gateway: LiveGateway, model: str, question: Question, found: list[int], wanted: list[int]
) -> None:
    """AssertionError where two answers of one model, or of the ``base``, part at anything but a tie of its logits."""
    if found == wanted:
        return
    client = "ann" if model == "base" else model
    expected = reference(gateway.store, client, _live_version(gateway.store, client))
    with expected.model.disable_adapter() if model == "base" else nullcontext():
        explanation, is_tie = explain(expected, question, found, wanted)
    assert is_tie, f"{model}: {explanation}"


def _live_version(store: Store, client: str) -> str:
    live = store.live(client, "mllm")
    assert live is not None, f"{client} has no live version"
    return live.version


def explain(expected: Reference, question: Question, found: list[int], wanted: list[int]) -> tuple[str, bool]:
    """Where two answers part, in words, and whether the logits there are a tie."""
    same = next(
        (i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), min(len(found), len(wanted))
    )
    if same == len(found) or same == len(wanted):
        return f"one answer goes on after {same} tokens: {found} and {wanted}", False
    logits = expected.logits(question, wanted[:same])
    gap = float(logits[wanted[same]] - logits[found[same]])
    words = f"token {same} is {found[same]} where {wanted[same]} is expected; their logits differ by {gap:.2e}"
    return words, abs(gap) <= 2 * rounding(LLAVA_LOGITS) * float(logits.abs().max())  # either may be off


@cache
def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return tokenizer
