"""The 4-bit LLaVA: what is quantised, that training and evaluation leave it exact, and how answers come about."""

import pytest
import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from safetensors.torch import load_file

from adapters_store.bases.frozen import QUANTISED, export_base
from adapters_store.paths import resolve
from tests.floats import BACK, LLAVA_LOGITS, check_close
from tests.train.small import config
from train.data import build
from train.models.lora import LoraOptions, LoraPersonal, adapt_, initial_lora, lora_parameters, without_adapter
from train.models.mllm import IGNORED, Mllm, load_llava

pytestmark = pytest.mark.numeric

BASE = resolve("bases/tiny/llava")
EXAMPLES = build(config("fedit").data, 0)[0].test


def four_bit(mllm: Mllm) -> dict[str, Linear4bit]:
    modules = dict(mllm.model.named_modules())
    return {n.replace(".base_layer", ""): m for n, m in modules.items() if isinstance(m, Linear4bit)}


def test_a_lora_starts_as_pefts_does(mllm: Mllm) -> None:
    """A uniform in ±1/√d_in, which it nearly fills, and B zero."""
    for name, tensor in initial_lora(adapt_(mllm, LoraOptions()), 0).items():
        if ".lora_A." in name:
            reach = float(tensor.abs().max()) * tensor.shape[1] ** 0.5
            assert 0.99 < reach <= 1
            assert abs(float(tensor.var()) * tensor.shape[1] * 3 - 1) < 0.15  # of a uniform: bound² / 3
        else:
            assert not tensor.any()


def test_exactly_the_language_models_layers_are_4_bit(mllm: Mllm) -> None:
    layers = mllm.model.config.text_config.num_hidden_layers
    names = {
        f"model.language_model.layers.{i}.{part}_proj"
        for i in range(layers)
        for part in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down")
    }
    assert four_bit(mllm).keys() == names


def test_quantised_layers_take_at_most_three_tenths_of_bf16(mllm: Mllm) -> None:
    packed = full = 0
    for module in four_bit(mllm).values():
        weight, state = module.weight, module.weight.quant_state
        statistics = (state.absmax, state.state2.absmax, state.state2.code, state.offset, state.code)
        packed += sum(t.numel() * t.element_size() for t in (weight, *statistics))
        full += 2 * module.in_features * module.out_features
    assert packed / full <= 0.30, f"{packed / full:.3f}"


def test_weights_are_those_that_serving_exports(mllm: Mllm, tmp_path: object) -> None:
    exported = load_file(export_base(BASE, tmp_path, "nf4") / "model.safetensors")  # type: ignore[arg-type]
    by_name = {
        name.replace("language_model.model.", "model.language_model.").removesuffix(".weight"): weight
        for name, weight in exported.items()
        if QUANTISED.search(name)
    }
    modules = four_bit(mllm)
    assert by_name.keys() == modules.keys()
    for name, module in modules.items():
        torch.testing.assert_close(
            dequantize_4bit(module.weight, module.weight.quant_state), by_name[name], rtol=0, atol=0
        )


def gradients(mllm: Mllm) -> dict[str, torch.Tensor]:
    options = LoraOptions()
    state = initial_lora(adapt_(mllm, options), 0)
    state = {name: value + 0.01 for name, value in state.items()}
    personal = LoraPersonal(mllm, options, state)
    for parameter in personal.parameters.values():
        parameter.requires_grad_(True)
        parameter.grad = None
    personal.outputs(personal.prepare(EXAMPLES[:4]), range(4)).loss.backward()
    grads = {name: p.grad for name, p in personal.parameters.items()}
    assert all(grad is not None and grad.abs().sum() > 0 for grad in grads.values())
    return {name: grad.clone() for name, grad in grads.items() if grad is not None}


def test_train_evaluate_train_keeps_weights_and_gradients_exact() -> None:
    """bitsandbytes repacks 4-bit weights at an evaluation forward on CPUs with AVX512-BF16, unless told not to."""
    mllm = Mllm("bases/tiny/llava", BASE)
    before = {name: dequantize_4bit(m.weight, m.weight.quant_state) for name, m in four_bit(mllm).items()}
    first = gradients(mllm)
    mllm.answer(EXAMPLES)
    second = gradients(mllm)
    after = {name: dequantize_4bit(m.weight, m.weight.quant_state) for name, m in four_bit(mllm).items()}
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_gradients_agree_with_those_over_the_dequantised_weights(mllm: Mllm, tmp_path: object) -> None:
    exported = export_base(BASE, tmp_path, "nf4")  # type: ignore[arg-type]
    plain = Mllm("bases/tiny/llava", exported, load_in_4bit=False)
    ours, theirs = gradients(mllm), gradients(plain)
    for name in ours:
        check_close(ours[name], theirs[name], BACK * LLAVA_LOGITS)


def test_answers_do_not_depend_on_the_batch(mllm: Mllm) -> None:
    with without_adapter(mllm):
        together = mllm.answer(EXAMPLES)
        alone = [mllm.answer([example])[0] for example in EXAMPLES]
    assert together == alone


def test_a_prompt_is_the_start_of_its_training_turn(mllm: Mllm) -> None:
    example = EXAMPLES[0]
    turn, start = mllm.tokenise(example.question, example.answer, 64)
    prompt, _ = mllm.tokenise(example.question, None, 64)
    assert turn[:start] == prompt
    assert turn[-1] == mllm.tokenizer.eos_token_id
    assert turn.count(mllm.model.config.image_token_id) == 64
    assert turn.count(mllm.tokenizer.bos_token_id) == 1
    assert mllm.tokenizer.decode(turn[start:], skip_special_tokens=True).strip() == example.answer


def test_text_only_turns_have_no_image(mllm: Mllm) -> None:
    prompt, _ = mllm.tokenise("how many sides has a square?", None, 0)
    assert mllm.model.config.image_token_id not in prompt


def test_the_loss_is_the_plain_models_over_the_answer(mllm: Mllm) -> None:
    """The batched, padded loss equals transformers' own on one turn at a time, image and all."""
    rows = EXAMPLES[:3]
    with without_adapter(mllm), torch.no_grad():
        soft = mllm.soft_tokens(rows)
        ours = mllm.answer_loss(mllm.turns(rows, soft), range(3), soft).item()
        total, count = 0.0, 0
        for example in rows:
            turn, start = mllm.tokenise(example.question, example.answer, 64)
            labels = torch.tensor([[IGNORED] * start + turn[start:]])
            soft = mllm.soft_tokens([example])
            embeds = mllm.embed(torch.tensor([turn]), soft)
            loss = mllm.model(inputs_embeds=embeds, labels=labels).loss
            total, count = total + loss.item() * (len(turn) - start), count + len(turn) - start
    check_close(ours, total / count, LLAVA_LOGITS)


def test_only_the_language_model_may_be_quantised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should transformers ever quantise more than it is told to, loading stops instead of training on it."""
    import re

    monkeypatch.setattr("train.models.mllm.QUANTISED", re.compile("self_attn"))
    with pytest.raises(RuntimeError, match="only the language model's layers"):
        load_llava(BASE, load_in_4bit=True, dtype=torch.float32)


def test_lora_sits_on_the_language_model_only(mllm: Mllm) -> None:
    names = lora_parameters(adapt_(mllm, LoraOptions()))
    assert len(names) == 2 * 7 * mllm.model.config.text_config.num_hidden_layers
    assert not any("vision" in name or "projector" in name for name in names)
