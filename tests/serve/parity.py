"""Whether the gateway says, token for token, what transformers and PEFT say over the 4-bit base of training."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from adapters_store.manifest import ImageTransform
from adapters_store.paths import resolve
from adapters_store.personal.images import to_pixels
from adapters_store.store import Store
from tests.serve.live import LiveGateway
from train.models.mllm import load_llava

TIE = 1e-3  # logits closer than this are one number to float32 sums in another order
MAX_TOKENS = 24

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


def reference(store: Store, client: str, version: str) -> Reference:
    """The version with plain ``PeftModel.from_pretrained`` on the NF4 base its manifest names."""
    artefact = store.artefact(client, version)
    manifest = artefact.manifest
    folder = resolve(manifest.base.name)
    base = load_llava(folder, load_in_4bit=manifest.base.quantization == "nf4", dtype=torch.float32)
    model = PeftModel.from_pretrained(base, artefact.path).eval()
    tokens = int(base.config.image_seq_length)
    return Reference(model, _tokenizer(folder), manifest.image_transform, manifest.prompt_template, tokens)


def check_parity(gateway: LiveGateway, store: Store, client: str, questions: Sequence[Question]) -> None:
    """AssertionError for a difference that no tie of logits explains; ties are printed."""
    live = store.live(client)
    assert live is not None, f"{client} has no live version"
    expected = reference(store, client, live.version)
    unexplained = []
    for number, question in enumerate(questions):
        served = gateway.ask(
            f"{client}@{live.version}",
            question[1],
            question[0],
            temperature=0,
            max_tokens=MAX_TOKENS,
            return_token_ids=True,
        )
        found, wanted = served["choices"][0]["token_ids"], expected.answer(question)
        if found != wanted:
            explanation, is_tie = explain(expected, question, found, wanted)
            print(f"{client} question {number}: {explanation}")
            if not is_tie:
                unexplained.append(explanation)
    assert not unexplained, f"{len(unexplained)} of {len(questions)} answers of {client} differ: {unexplained[0]}"


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
    return words, abs(gap) < TIE


@cache
def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return tokenizer
