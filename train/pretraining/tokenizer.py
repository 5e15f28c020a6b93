"""The tokenizer of the embedded models: every word of their world is one token, others are spelt in letters.

Ids: 0 <pad>, 1 <s>, then markers and pieces, </s> last (so that CLIP's arg-max pooling finds the end of a text).
"""

import re
import string
from pathlib import Path
from typing import Final

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from train.data.world.questions import SIDES, TEXT_TURNS, WORDINGS
from train.data.world.vocabulary import CELLS, COLOURS, GLYPHS, IMAGE_SIZE
from train.pretraining.captions import PATTERNS

VOCABULARY: Final = 704
"""Size of the embedding tables; what the pieces leave is filled with reserved tokens."""
SPECIAL: Final = ("<pad>", "<s>", "<unk>", "<image>", "USER:", "ASSISTANT:")
EXTRA_WORDS: Final = """
yes no and an the a in on of is are was it this that these those there here i you we me my your what which who
where when how why do does did can could would please tell show find name list count say describe explain image
picture photo scene object objects thing things shape shapes colour colours color colors digit digits number
numbers small large big left right above below top bottom middle center centre between next to near far side
corner box bounding not only all any some none more less many much most than same different first second third
one two with without for from by at or if answer question true false
"""

CHAT_TEMPLATE: Final = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ 'ASSISTANT: ' }}{% else %}{{ 'USER: ' }}{% endif %}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}"
    "{% for part in message['content'] if part['type'] in ('image', 'image_url') %}{{ '<image>' }}{% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] }}{% endfor %}"
    "{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% else %}{{ ' ' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
"""Images come first in a message, wherever its parts put them: that is what the model was trained on."""


def world_words() -> list[str]:
    """Every word that questions, answers and captions can hold, lower case, each once."""
    texts = [*GLYPHS, *COLOURS, *CELLS, *SIDES, *PATTERNS, *(w for ways in WORDINGS.values() for w in ways)]
    texts += [part for turn in TEXT_TURNS for part in turn]
    words = re.findall(r"[a-z]+", re.sub(r"{\w+}", " ", " ".join(texts)).lower())
    return sorted({*words, *EXTRA_WORDS.split()}) + [str(n) for n in range(IMAGE_SIZE)]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A fast tokenizer that adds <s> and </s> and lower-cases; unknown words become letters, unknown letters bytes."""
    words = [(f"▁{word}", -1.0) for word in world_words()]
    letters = [(c, -10.0) for c in ["▁", *string.ascii_lowercase, *string.digits, *string.punctuation]]
    data = [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    pieces: list[tuple[str, float]] = [*((token, 0.0) for token in SPECIAL), *words, *letters, *data]
    reserved = VOCABULARY - 1 - len(pieces)
    if reserved < 0:
        raise ValueError(f"VOCABULARY: found {VOCABULARY}, the words need at least {len(pieces) + 1}")
    pieces += [*((f"<reserved{i}>", -99.0) for i in range(reserved)), ("</s>", 0.0)]
    core = Tokenizer(models.Unigram(pieces, unk_id=SPECIAL.index("<unk>"), byte_fallback=True))
    core.normalizer = normalizers.Sequence(
        [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip(), normalizers.Lowercase()]
    )
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", VOCABULARY - 1)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>", "USER:", "ASSISTANT:"]})
    return tokenizer


def save_tokenizer(folder: Path, *, chat: bool) -> None:
    """Writes tokenizer.json and tokenizer_config.json; chat: with the chat template, which alone adds <s> and </s>."""
    tokenizer = make_tokenizer()
    if chat:
        tokenizer.backend_tokenizer.post_processor = processors.Sequence([])
        tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
