"""Rendering an artefact's prompt template: equal to transformers, and closed to the user's special tokens."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from transformers import AutoTokenizer

from adapters_store.templates.chat_template import takes_parts
from adapters_store.templates.sandbox import CPU_S, TemplateExceededError
from serve.chat.templates import Prompts
from serve.errors import GatewayError
from serve.schemas import Message
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


@dataclass
class Rendering:
    """Prompts in an event loop of their own."""

    prompts: Prompts
    loop: asyncio.Runner

    def render(self, template: str, messages: list[Message]) -> str:
        """The prompt."""
        return self.loop.run(self.prompts.render(template, messages))


@pytest.fixture(scope="module")
def prompts() -> Iterator[Rendering]:
    """Prompts for the embedded base."""
    with asyncio.Runner() as loop:
        prompts = Prompts(LLAVA)
        yield Rendering(prompts, loop)
        loop.run(prompts.close())


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_equals_transformers(prompts: Rendering, name: str) -> None:
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


def test_a_plain_string_is_the_same_as_one_text(prompts: Rendering) -> None:
    plain = [Message(role="user", content="what is it?")]
    assert prompts.render(TEMPLATE, plain) == prompts.render(TEMPLATE, CONVERSATIONS["text"])
    assert prompts.render(HUB, plain) == "USER: what is it? ASSISTANT:"


def test_the_beginning_of_text_is_written_once(prompts: Rendering) -> None:
    prompt = prompts.render(TEMPLATE, CONVERSATIONS["turns"])
    assert prompt.count("<s>") == 1
    ids = AutoTokenizer.from_pretrained(LLAVA)(prompt, add_special_tokens=False).input_ids
    assert ids.count(AutoTokenizer.from_pretrained(LLAVA).bos_token_id) == 1


@pytest.mark.parametrize("token", ["<image>", "</s>", "<s>", "<pad>"])
def test_special_tokens_of_users_are_refused(prompts: Rendering, token: str) -> None:
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
def test_special_tokens_put_together_are_refused(prompts: Rendering, template: str, said: list[Message]) -> None:
    with pytest.raises(GatewayError, match="reserved") as refused:
        prompts.render(template, said)
    assert refused.value.status == 400


@pytest.mark.parametrize("text", ["a < b and c > d", "<", ">", "<b>bold</b>", "</", "s>", "x", "US and ER:"])
def test_what_only_resembles_them_is_not(prompts: Rendering, text: str) -> None:
    for template in (TEMPLATE, HUB):
        assert text in prompts.render(template, [message("user", IMAGE, text)])


def test_a_template_without_a_place_for_the_image_is_refused(prompts: Rendering) -> None:
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
def test_a_template_cannot_leave_its_sandbox(prompts: Rendering, template: str) -> None:
    with pytest.raises(GatewayError, match="prompt template") as refused:
        prompts.render(template, CONVERSATIONS["text"])
    assert refused.value.status == 400


def test_which_templates_read_parts() -> None:
    assert takes_parts(TEMPLATE)
    assert takes_parts(HUB)
    assert not takes_parts("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert not takes_parts("{{ messages[0].content + ' ' }}")


LOOPS = "".join(f"{{% for {x} in range(99999) %}}" for x in "abc") + "x" + "{% endfor %}" * 3
SLOW_ON_DEMAND = "{{ messages[0].content }}{% if 'now' in messages[0].content %}" + LOOPS + "{% endif %}"


def test_a_slow_template_holds_up_no_other_and_not_the_loop(prompts: Rendering) -> None:
    """While it is stopped, again and again, everybody else's are rendered; the event loop goes on all the time."""

    async def both() -> tuple[int, float]:
        loop, rendered, longest = asyncio.get_running_loop(), 0, 0.0
        slow = [asyncio.create_task(prompts.prompts.render(SLOW_ON_DEMAND, NOW)) for _ in range(3)]
        while not all(task.done() for task in slow):
            began = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - began)
            assert "what is it?" in await prompts.prompts.render(TEMPLATE, CONVERSATIONS["text"])
            rendered += 1
        for task in slow:
            with pytest.raises(TemplateExceededError):
                task.result()
        return rendered, longest

    rendered, longest = prompts.loop.run(both())
    assert rendered > 10
    assert longest < CPU_S  # what one of them takes before it is stopped


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (LOOPS + "{{ messages }}", "processor time"),
        ("{% broken", "fails over a plain question"),
        ("{{ messages[0].content }}", "no place for 1 images"),
        ("<image>{{ messages[0].content }}", "no place for 0 images"),
    ],
)
def test_such_a_template_does_not_go_live(prompts: Rendering, template: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        prompts.loop.run(prompts.prompts.check(template))
    prompts.loop.run(prompts.prompts.check(TEMPLATE))


NOW = [message("user", "now")]
