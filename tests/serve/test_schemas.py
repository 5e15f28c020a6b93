"""What requests may say: OpenAI's own answers sent back, several answers, and nothing that fails in the engine."""

from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage, ParsedChatCompletionMessage
from pydantic import ValidationError

from serve.schemas import MAX_PARTS, ChatRequest


def asked(*messages: Any, **fields: Any) -> ChatRequest:
    """A request with those messages before a user's last one."""
    return ChatRequest.model_validate(
        {"model": "ann", "messages": [*messages, {"role": "user", "content": "b"}], **fields}
    )


@pytest.mark.parametrize("kind", [ChatCompletionMessage, ParsedChatCompletionMessage])
def test_an_answer_of_openais_client_can_be_sent_back(kind: type[ChatCompletionMessage]) -> None:
    message = kind(role="assistant", content="a circle", refusal=None, tool_calls=[])
    for sent in (message.model_dump(), message.model_dump(exclude_none=True), message.to_dict()):
        assert asked(sent).messages[0].parts[0].text == "a circle"  # type: ignore[union-attr]
    assert asked(ChatCompletionMessage(role="assistant").model_dump()).messages[0].parts[0].text == ""  # type: ignore[union-attr]


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, "call no tools"),
        ({"role": "assistant", "content": None, "function_call": CALL["function"]}, "call no tools"),
        ({"role": "assistant", "content": "a", "audio": {"id": "1"}}, "text alone"),
        ({"role": "user", "content": None}, "only an assistant's may be"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}] * (MAX_PARTS + 1)}, f"at most {MAX_PARTS}"),
        ({"role": "user"}, "required"),
    ],
)
def test_what_no_answer_of_ours_has_is_refused(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        asked(message)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"n": 2, "temperature": 0}, "'n' is 2 at temperature 0"),
        ({"top_logprobs": 2}, "needs 'logprobs' to be true"),
        ({"stop": ""}, "at least 1 character"),
        ({"stop": ["a", ""]}, "at least 1 character"),
    ],
)
def test_what_the_engine_would_refuse_is_refused_in_our_words(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        asked(**fields)


def test_several_answers_without_a_temperature_are_no_error() -> None:
    assert asked(n=2).answers == 2
    assert asked(n=1, temperature=0).answers == 1
    assert asked().answers == 1
