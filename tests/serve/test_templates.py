"""Rendering an artefact's prompt template: equal to transformers, and closed to the user's special tokens."""

from typing import Any

import pytest
from transformers import AutoTokenizer

from serve.errors import GatewayError
from serve.schemas import Message
from serve.templates import Prompts, takes_parts
from tests.serve.artefacts import LLAVA

TEMPLATE = (LLAVA / "chat_template.jinja").read_text()
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
HUB = (  # the shape of llava-hf/llava-1.5-7b-hf's template
    "{% for message in messages %}{{ message['role'].upper() + ': '}}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{% generation %}"
    "{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def message(role: str, *parts: str | dict[str, Any]) -> Message:
    """A message of texts and images."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return Message.model_validate({"role": role, "content": content})


CONVERSATIONS = {
    "text": [message("user", "what is it?")],
    "image": [message("user", IMAGE, "what is it?")],
    "two images": [message("user", IMAGE, IMAGE, "which is larger?")],
    "turns": [message("user", IMAGE, "what?"), message("assistant", "a circle"), message("user", IMAGE, "and this?")],
    "spaces": [message("user", "  how\n many {{ braces }} ? ")],
}


@pytest.fixture(scope="module")
def prompts() -> Prompts:
    """Prompts for the embedded base."""
    return Prompts(LLAVA)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_equals_transformers(prompts: Prompts, name: str) -> None:
    plain = [
        {
            "role": m.role,
            "content": [
                {"type": "image"} if p.type == "image_url" else {"type": "text", "text": p.text} for p in m.parts
            ],
        }
        for m in CONVERSATIONS[name]
    ]
    expected = AutoTokenizer.from_pretrained(LLAVA).apply_chat_template(
        plain, tokenize=False, add_generation_prompt=True
    )
    assert prompts.render(TEMPLATE, CONVERSATIONS[name]) == expected


def test_a_plain_string_is_the_same_as_one_text(prompts: Prompts) -> None:
    plain = [Message(role="user", content="what is it?")]
    assert prompts.render(TEMPLATE, plain) == prompts.render(TEMPLATE, CONVERSATIONS["text"])
    assert prompts.render(HUB, plain) == "USER: what is it? ASSISTANT:"


def test_the_beginning_of_text_is_written_once(prompts: Prompts) -> None:
    prompt = prompts.render(TEMPLATE, CONVERSATIONS["turns"])
    assert prompt.count("<s>") == 1
    ids = AutoTokenizer.from_pretrained(LLAVA)(prompt, add_special_tokens=False).input_ids
    assert ids.count(AutoTokenizer.from_pretrained(LLAVA).bos_token_id) == 1


@pytest.mark.parametrize("token", ["<image>", "</s>", "<s>", "<pad>"])
def test_special_tokens_of_users_are_refused(prompts: Prompts, token: str) -> None:
    with pytest.raises(GatewayError, match="reserved") as refused:
        prompts.render(TEMPLATE, [message("user", f"look {token} here")])
    assert refused.value.status == 400


TRIMMED = "{% for m in messages %}{% for p in m.content %}{{ p.text | trim }}{% endfor %}{% endfor %}"
LOWERED = "{% for m in messages %}{% for p in m.content %}{{ p.text | lower }} {% endfor %}{% endfor %}"
OPEN = "{% for m in messages %}{% for p in m.content %}<{{ p.text }}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (TEMPLATE, [message("user", "<ima", "ge>")]),
        (TEMPLATE, [message("user", IMAGE, "<", "/s>", " what?")]),
        (TEMPLATE, [message("user", "US", "ER:")]),
        (TRIMMED, [message("user", "<s", "> and so on")]),
        (TRIMMED, [message("user", "<ima  ", "  ge>")]),
        (TRIMMED, [message("user", "a </"), message("assistant", "s>"), message("user", "b")]),
        (TRIMMED, [message("user", "<"), message("assistant", "pad"), message("user", ">")]),
        (LOWERED, [message("user", "</S>")]),
        (OPEN, [message("user", "image> what?")]),
    ],
)
def test_special_tokens_put_together_are_refused(prompts: Prompts, template: str, said: list[Message]) -> None:
    with pytest.raises(GatewayError, match="reserved") as refused:
        prompts.render(template, said)
    assert refused.value.status == 400


@pytest.mark.parametrize("text", ["a < b and c > d", "<", ">", "<b>bold</b>", "</", "s>", "x", "US and ER:"])
def test_what_only_resembles_them_is_not(prompts: Prompts, text: str) -> None:
    for template in (TEMPLATE, HUB):
        assert text in prompts.render(template, [message("user", IMAGE, text)])


def test_a_template_without_a_place_for_the_image_is_refused(prompts: Prompts) -> None:
    with pytest.raises(GatewayError, match="no place for 1 images"):
        prompts.render("{{ messages[0].content }}", CONVERSATIONS["image"])


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('only users may speak') }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ messages[0].append }}{{ messages.append(1) }}",
        "{% broken",
    ],
)
def test_a_template_cannot_leave_its_sandbox(prompts: Prompts, template: str) -> None:
    with pytest.raises(GatewayError, match="prompt template") as refused:
        prompts.render(template, CONVERSATIONS["text"])
    assert refused.value.status == 400


def test_which_templates_read_parts() -> None:
    assert takes_parts(TEMPLATE)
    assert takes_parts(HUB)
    assert not takes_parts("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert not takes_parts("{{ messages[0].content + ' ' }}")
