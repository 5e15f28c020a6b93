"""The cheap bound on a conversation's length: nothing that could fit is refused, what cannot is never rendered."""

import pytest
from tokenizers import Tokenizer

from serve.chat.prompt_length import PromptLength, longest_token
from serve.errors import GatewayError
from serve.schemas import Message
from tests.serve.artefacts import LLAVA

TOKENS = 512


def said(*texts: str) -> list[Message]:
    """Messages of those texts."""
    return [Message(role="user", content=text) for text in texts]


def test_a_text_of_the_longest_tokens_fits() -> None:
    tokenizer = Tokenizer.from_file(str(LLAVA / "tokenizer.json"))
    longest = longest_token(LLAVA)
    assert longest == max(map(len, tokenizer.get_vocab()))
    PromptLength(LLAVA, TOKENS).check(said("x" * longest * TOKENS))


def test_longer_ones_are_refused_however_they_are_divided() -> None:
    length = PromptLength(LLAVA, TOKENS)
    allowed = longest_token(LLAVA) * TOKENS
    for texts in (["x" * (allowed + 1)], ["x" * (allowed // 200 + 1)] * 200):
        with pytest.raises(
            GatewayError, match=f"messages have {sum(map(len, texts))} characters: at most {allowed}"
        ) as refused:
            length.check(said(*texts))
        assert refused.value.status == 400


def test_an_answer_longer_than_the_context_is_refused() -> None:
    PromptLength(LLAVA, TOKENS).check_answer(TOKENS)
    with pytest.raises(GatewayError, match="found 513, at most 512"):
        PromptLength(LLAVA, TOKENS).check_answer(TOKENS + 1)
