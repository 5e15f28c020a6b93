"""A LLaVA with a 4-bit language model: loading, soft tokens, tokens, loss and greedy answers.

Letters: B batch, N visual tokens, V width of the vision tower, d width of the language model, L sequence length.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import BaseModel
from torch import Tensor

from adapters_store.bases.frozen import QUANTISED, base_id
from adapters_store.bases.llava import chat_template, check_llava
from adapters_store.personal.connector import PARTS, Mlp
from adapters_store.pictures.pixels import to_pixels
from adapters_store.pictures.processors import of_llava
from adapters_store.versions.manifest import BaseRef
from train.data import Example
from train.models.feature_cache import FeatureCache

if TYPE_CHECKING:  # both are slow to import, and a configuration is checked without them
    from peft import PeftModel
    from transformers import LlavaForConditionalGeneration

IGNORED = -100  # cross_entropy's label for tokens that are not the answer's
See = Callable[[Sequence[Example]], Tensor]


@dataclass(frozen=True)
class Turns:
    """Question–answer turns ready for the language model; one entry a turn."""

    visual: Tensor  # (turns, N, d) soft tokens; or features, or pixels, for what is trained before the language model
    tokens: list[list[int]]  # prompt and answer, the image placeholder N times
    answer_starts: list[int]


class Mllm:
    """The resident base of family mllm; everything in it is frozen."""

    family: Literal["mllm", "clip"] = "mllm"

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        load_in_4bit: bool = True,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        max_new_tokens: int = 32,
        cache_mib: float = 512.0,
        cache_folder: Path | None = None,
    ) -> None:
        from transformers import AutoTokenizer

        check_llava(folder)
        quantization: Literal["nf4"] | None = "nf4" if load_in_4bit else None
        self.base = BaseRef(id=base_id(folder, quantization), name=name, quantization=quantization)
        self.model = load_llava(folder, load_in_4bit=load_in_4bit, dtype=dtype, device=device)
        self.max_new_tokens = max_new_tokens
        self.device = torch.device(device)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.tokenizer.chat_template = chat_template(folder)  # where serving reads it, too
        if self.tokenise("?", None, 1)[0].count(self.model.config.image_token_id) != 1:
            raise ValueError(f"base {str(folder)!r}: its prompt template has no place for an image")
        self.image_transform = of_llava(folder)
        self.adapted: PeftModel | None = None  # train/models/lora.py puts it there and swaps its tensors
        self.adapter_shape: BaseModel | None = None
        self.cache = FeatureCache(self.base.id, cache_mib, cache_folder, disk_mib=16 * cache_mib)

    @property
    def prompt_template(self) -> str:
        """The Jinja chat template, as published with every artefact."""
        return str(self.tokenizer.chat_template)

    @property
    def projector(self) -> Any:
        """The base's own connector between vision tower and language model."""
        return self.model.model.multi_modal_projector

    def projector_adapter(self) -> Mlp:
        """A copy of the projector's tensors. Raises ValueError where it is no two-layer GELU adapter with biases."""
        parts = dict(self.projector.named_parameters())
        activation = self.model.config.projector_hidden_act
        if parts.keys() != set(PARTS) or activation != "gelu":
            raise ValueError(
                f"base: its projector has {sorted(parts)} and {activation!r};"
                f" a connector needs {sorted(PARTS)} and 'gelu'"
            )
        return Mlp(*(parts[part].detach().float().cpu().clone() for part in PARTS))

    def features(self, examples: Sequence[Example]) -> Tensor:
        """(n, N, V) float32, on the CPU: what the projector is given of each image; computed once an image."""
        flat = self.cache.features(examples, self._encode)
        features: Tensor = flat.unflatten(-1, (-1, self.projector.linear_1.in_features))
        return features

    @torch.no_grad()
    def _encode(self, examples: Sequence[Example]) -> Tensor:
        """(m, N·V) of the frozen vision tower."""
        pixels = torch.stack([to_pixels(example.image, self.image_transform) for example in examples])
        return self.projector_input(pixels.to(self.device)).flatten(1)

    def projector_input(self, pixels: Tensor) -> Tensor:
        """(m, N, V) float32 features of images (m, 3, side, side), differentiable."""
        given: list[Tensor] = []
        hook = self.projector.register_forward_pre_hook(lambda _, arguments: given.append(arguments[0]))
        try:
            self.model.get_image_features(pixel_values=pixels.to(self.model.dtype))
        finally:
            hook.remove()
        return given[0].float()

    @torch.no_grad()
    def soft_tokens(self, examples: Sequence[Example]) -> Tensor:
        """(n, N, d) float32: what the frozen vision tower and projector make of each image."""
        features = self.features(examples).split(64)
        return torch.cat([self.projector(part.to(self.device, self.model.dtype)).float() for part in features])

    def tokenise(self, question: str, answer: str | None, visual_tokens: int) -> tuple[list[int], int]:
        """Token ids of the rendered conversation, and where the answer starts; ``answer`` None leaves it open."""
        content = [{"type": "image"}] * (visual_tokens > 0) + [{"type": "text", "text": question}]
        asked = {"role": "user", "content": content}
        prompt = self._render([asked], open_ended=True)
        start = self._ids(prompt, visual_tokens)
        if answer is None:
            return start, len(start)
        replied = {"role": "assistant", "content": [{"type": "text", "text": answer}]}
        rest = self.tokenizer(
            self._render([asked, replied], open_ended=False)[len(prompt) :], add_special_tokens=False
        ).input_ids
        if rest[-1] != self.tokenizer.eos_token_id:
            rest = [*rest, self.tokenizer.eos_token_id]
        return start + rest, len(start)

    def turns(self, examples: Sequence[Example], visual: Tensor, visual_tokens: int | None = None) -> Turns:
        """The examples tokenised, beside what stands for their images: N tokens each, or ``visual_tokens``."""
        tokenised = [self.tokenise(e.question, e.answer, visual_tokens or visual.shape[1]) for e in examples]
        return Turns(visual, [tokens for tokens, _ in tokenised], [start for _, start in tokenised])

    def answer_loss(self, turns: Turns, rows: Sequence[int], soft: Tensor) -> Tensor:
        """Mean cross-entropy of these turns' answer tokens, with whatever adapter is in place; soft (B, N, d)."""
        length = max(len(turns.tokens[row]) for row in rows)
        padding = self.tokenizer.eos_token_id
        tokens = torch.full((len(rows), length), padding, device=self.device)  # (B, L), padded on the right
        labels = torch.full((len(rows), length), IGNORED, device=self.device)
        mask = torch.zeros((len(rows), length), dtype=torch.long, device=self.device)
        for i, row in enumerate(rows):
            ids, start = turns.tokens[row], turns.answer_starts[row]
            tokens[i, : len(ids)] = torch.tensor(ids)
            labels[i, start : len(ids)] = tokens[i, start : len(ids)]
            mask[i, : len(ids)] = 1
        embeds = self.embed(tokens, soft)
        hidden = self.model.model.language_model(inputs_embeds=embeds, attention_mask=mask).last_hidden_state
        wanted = labels[:, 1:] != IGNORED
        logits = self.model.lm_head(hidden[:, :-1][wanted])  # only where an answer token follows
        return F.cross_entropy(logits.float(), labels[:, 1:][wanted])

    @torch.no_grad()
    def answer(self, examples: Sequence[Example], see: See | None = None, batch: int = 64) -> list[str]:
        """Greedy answers, prompts of a batch padded on the left. ``see`` gives the images' soft tokens (n, N, d)."""
        see = see or self.soft_tokens
        answers: list[str] = []
        for chunk in _chunks(list(examples), batch):
            soft = see(chunk)
            prompts = [self.tokenise(e.question, None, soft.shape[1])[0] for e in chunk]
            length = max(map(len, prompts))
            tokens = torch.full((len(chunk), length), self.tokenizer.eos_token_id, device=self.device)
            mask = torch.zeros_like(tokens)
            for i, ids in enumerate(prompts):
                tokens[i, length - len(ids) :] = torch.tensor(ids)
                mask[i, length - len(ids) :] = 1
            model: Any = self.model  # generate's own annotation does not admit a LLaVA
            out = model.generate(
                inputs_embeds=self.embed(tokens, soft),
                attention_mask=mask,
                max_new_tokens=self.max_new_tokens,
                do_sample=False,
                pad_token_id=self.tokenizer.eos_token_id,
            )
            answers += self.tokenizer.batch_decode(torch.as_tensor(out), skip_special_tokens=True)
        return [answer.strip() for answer in answers]

    def embed(self, tokens: Tensor, soft: Tensor) -> Tensor:
        """Input embeddings (B, L, d): the tokens' own, the image placeholders replaced by soft tokens (B, N, d)."""
        embeds: Tensor = self.model.get_input_embeddings()(tokens)
        places = tokens == self.model.config.image_token_id
        if places.any():
            embeds = embeds.clone()
            embeds[places] = soft.flatten(0, 1).to(embeds.device, embeds.dtype)
        return embeds

    def _render(self, messages: list[dict[str, Any]], *, open_ended: bool) -> str:
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=open_ended))

    def _ids(self, text: str, visual_tokens: int) -> list[int]:
        ids = self.tokenizer(text, add_special_tokens=False).input_ids
        image = self.model.config.image_token_id
        return [token for i in ids for token in ([image] * visual_tokens if i == image else [i])]


def load_llava(
    folder: Path, *, load_in_4bit: bool, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> "LlavaForConditionalGeneration":
    """The frozen LLaVA in evaluation mode; with ``load_in_4bit`` the tensors of ``QUANTISED`` are NF4, no others."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns of an optional kernel package on every CPU
    from bitsandbytes.nn.modules import Linear4bit
    from transformers import BitsAndBytesConfig, LlavaForConditionalGeneration
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    quantization = None
    if load_in_4bit:
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
            llm_int8_skip_modules=["model.vision_tower", "model.multi_modal_projector", "lm_head"],
        )
    load: Any = LlavaForConditionalGeneration.from_pretrained  # whose annotation does not know of the loading info
    model, loaded = load(
        folder,
        dtype=dtype,
        quantization_config=quantization,
        device_map={"": torch.device(device)},
        ignore_mismatched_sizes=True,  # they are found below, 4-bit ones too
        output_loading_info=True,
    )
    if lacking := sorted({*loaded["missing_keys"], *_misshapen(model)}):
        raise ValueError(
            f"base {str(folder)!r} lacks {len(lacking)} weights, {lacking[0]} first: they would be random numbers"
        )
    for name, module in model.named_modules():
        if isinstance(module, Linear4bit):
            if not QUANTISED.search(f"{name}.weight"):
                raise RuntimeError(f"{name} was quantised, but only the language model's layers may be")
            # On CPUs with AVX512-BF16, bitsandbytes repacks the weight at the first evaluation forward; after that
            # neither its dequantisation nor the gradient to the input is right.
            module.support_avx512bf16_for_cpu = False
    frozen: LlavaForConditionalGeneration = model.eval().requires_grad_(False)
    return frozen


def _misshapen(model: "LlavaForConditionalGeneration") -> list[str]:
    """Names of the weights that have not the shape that the configuration gives them."""
    with torch.device("meta"):
        asked = dict(type(model)(model.config).named_parameters())
    shapes = {name: getattr(weight, "quant_state", weight).shape for name, weight in model.named_parameters()}
    return [name for name, shape in shapes.items() if shape != asked[name].shape]


def _chunks(items: list[Example], size: int) -> list[list[Example]]:
    return [items[i : i + size] for i in range(0, len(items), size)]
