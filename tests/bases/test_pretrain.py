"""How the base is made: repeatable batches, packing that changes nothing, and a run that can be cut and continued."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.floats import CLIP_IMAGE, CLIP_TEXT, LLAVA_LOGITS, check_close
from train.pretraining.clip import Sizes, encode, encode_texts, make_batch, make_clip, train_clip
from train.pretraining.export import export_clip, export_llava, load_clip
from train.pretraining.llava import make_batch as make_turns
from train.pretraining.llava import make_llava
from train.pretraining.loop import Budget
from train.pretraining.packing import IGNORED, PREFIX, TurnEncoder, check_template, pack
from train.pretraining.tokenizer import make_tokenizer

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.mark.numeric
def test_the_fast_forward_is_open_clips() -> None:
    model, tokenizer = make_clip(1).eval(), make_tokenizer()
    images, texts = torch.randn(2, 3, 64, 64), ["a red star", "there is a blue ring in the image."]
    ids = tokenizer(texts, padding="max_length", max_length=32, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        check_close(encode(model.visual, images)[1], model.encode_image(images), CLIP_IMAGE)
        check_close(encode_texts(model, tokenizer, texts), model.encode_text(ids, normalize=True), CLIP_TEXT)


def test_batches_depend_on_seed_and_step_alone() -> None:
    encoder = TurnEncoder(make_tokenizer())
    a, b, c = (make_batch(Sizes(4, 4), 1, step) for step in (5, 5, 6))
    assert torch.equal(a.images, b.images)
    assert a.captions == b.captions
    assert not torch.equal(a.images, c.images)
    (x, p), (y, q), (z, _) = (make_turns(4, 1, step, encoder) for step in (5, 5, 6))
    assert torch.equal(x, y)
    assert torch.equal(p.tokens, q.tokens)
    assert not torch.equal(x, z)


@pytest.mark.numeric
def test_packed_turns_equal_single_ones(tmp_path: Path) -> None:
    """Several turns in one sequence give the logits that each gives alone in the exported model."""
    from transformers import LlavaForConditionalGeneration

    clip, model, encoder = make_clip(2), make_llava(2), TurnEncoder(make_tokenizer())
    check_template(encoder.tokenizer, encoder)
    export_llava(clip, model, tmp_path)
    theirs = LlavaForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float16).float().eval()
    stored = load_file(tmp_path / "model.safetensors")
    head = "language_model.model."
    model.language.load_state_dict({k.removeprefix(head): t.float() for k, t in stored.items() if k.startswith(head)})
    turns = [
        (True, ("What shape is the red object?", "star")),
        (False, ("What comes after one?", "two")),
        (True, ("Give the box of the red star.", "box 1 2 30 40")),
    ]
    packed, pixels = pack([turns], encoder), torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        soft = theirs.get_image_features(pixel_values=pixels).pooler_output[0][None]
        embedded = model.language.embed_tokens(packed.tokens)
        embedded = torch.cat([embedded[:, :2], soft, embedded[:, PREFIX:]], 1)
        mask = torch.where(packed.mask, 0.0, -1e4)
        out = model.language(inputs_embeds=embedded, attention_mask=mask, position_ids=packed.positions)
        logits = out.last_hidden_state[0] @ model.language.embed_tokens.weight.T
        start = PREFIX
        for needs_image, turn in turns:
            asked, answer = encoder.turn(turn)
            ids = torch.tensor([[1, 4, *([3] * 64 if needs_image else []), *asked, *answer]])
            alone = theirs(input_ids=ids, pixel_values=pixels if needs_image else None).logits[0]
            size = len(asked) + len(answer)
            check_close(alone[-size:], logits[start : start + size], LLAVA_LOGITS)
            targets = packed.targets[0, start : start + size]
            assert targets[targets != IGNORED].tolist() == answer
            start += size


@pytest.mark.numeric
def test_a_cut_run_continues_to_the_same_weights(tmp_path: Path) -> None:
    def weights(folder: Path, lengths: list[int]) -> dict[str, torch.Tensor]:
        for steps in lengths:
            budget = Budget(steps=4)
            if steps < 4:
                stop_after(budget, steps, folder)
            else:
                model, _ = train_clip(budget, 3, folder, CPU, Sizes(4, 4), resume=True)
        return {name: p.detach().clone() for name, p in model.named_parameters()}

    straight, cut = weights(tmp_path / "a", [4]), weights(tmp_path / "b", [2, 4])
    assert all(torch.equal(straight[name], cut[name]) for name in straight)


def stop_after(budget: Budget, steps: int, folder: Path) -> None:
    """Trains as if to the budget's end, but is cut off after `steps`, with progress saved."""
    from train.pretraining import loop

    class Cut(Exception):
        pass

    advance = loop.Stage.advance

    def cutting(stage: loop.Stage, losses: dict[str, torch.Tensor]) -> None:
        if stage.step == steps:
            stage.save()
            raise Cut
        advance(stage, losses)

    loop.Stage.advance = cutting  # type: ignore[method-assign]
    try:
        with pytest.raises(Cut):
            train_clip(budget, 3, folder, CPU, Sizes(4, 4), resume=False)
    finally:
        loop.Stage.advance = advance  # type: ignore[method-assign]


@pytest.mark.numeric
def test_exported_clip_comes_back(tmp_path: Path) -> None:
    model = make_clip(4)
    export_clip(model, tmp_path)
    again = load_clip(tmp_path)
    for name, p in model.state_dict().items():
        assert torch.equal(p.half().float(), again.state_dict()[name].float())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "train/pretrain.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
    )


def test_the_whole_command_runs(tmp_path: Path) -> None:
    done = run("all", "--smoke", "--device", "cpu", "--out", str(tmp_path / "base"), "--work", str(tmp_path / "work"))
    assert done.returncode == 0, done.stderr
    base = tmp_path / "base"
    assert {p.name for p in base.iterdir()} == {"clip", "llava", "training.json", "evaluation.json", "README.md"}
    assert json.loads((base / "training.json").read_text())["llava"]["steps"] == 3


def test_refusals() -> None:
    done = run("llava", "--out", "/nonexistent")
    assert done.returncode == 2
    assert "--out: /nonexistent holds no clip/" in done.stderr
