"""Ask a question about a picture, or without one; the answer streams in with the version that gives it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.gateway import Gateway, GatewayError
from ui.picture import sent
from ui.session import Sessions
from ui.uploads import Uploads

AT_ONCE = 16  # answers streaming at the same time; the gateway batches them
LONGEST_QUESTION = 4000  # characters


@dataclass(frozen=True)
class AskView:
    """The widgets of the view; ``group`` is shown for clients whose model answers questions.

    A question is written in ``question`` and moves to ``asked``, above its answer, when it is asked.
    """

    group: gr.Group
    question: gr.Textbox
    button: gr.Button
    stop: gr.Button
    asked: gr.Textbox
    answer: gr.Textbox

    @property
    def asking(self) -> list[Any]:
        """What changes while an answer comes in."""
        return [self.question, self.button, self.stop]


def draw() -> AskView:
    """Lays the view out where it is called."""
    with gr.Group(visible=False) as group:
        question = gr.Textbox(label="Question", placeholder="What is in the picture?", max_length=LONGEST_QUESTION)
        with gr.Row():
            button = gr.Button("Ask", variant="primary", scale=3)
            stop = gr.Button("Stop", variant="stop", scale=1, min_width=80, visible=False)
        asked = gr.Textbox(label="You asked", interactive=False, visible=False)
        answer = gr.Textbox(label="Answer", lines=2, interactive=False, buttons=["copy"])
    return AskView(group, question, button, stop, asked, answer)


def wire(
    view: AskView,
    gateway: Gateway,
    sessions: Sessions,
    uploads: Uploads,
    client: gr.Dropdown,
    picture: gr.Image,
    source: gr.Textbox,
) -> Any:
    """Connects the view to the gateway; returns the event, after which ``rested`` is due, however it ended."""

    async def begin(question: object) -> tuple[Any, ...]:
        moved = gr.Textbox(checked(question), visible=True), gr.Textbox("", interactive=False)
        return *moved, gr.Button(interactive=False), gr.Button(visible=True), "", ""

    async def ask(
        name: object, upload: object, question: object, request: gr.Request
    ) -> AsyncIterator[tuple[str, str]]:
        who, name = sessions.permitted(request, name)
        question = checked(question)
        png = await sent(uploads.opened(who, upload))
        so_far = "", ""
        yield "", "…"
        with sessions.spoken(who):
            try:
                async for piece in gateway.ask(who.key, name, question, png):
                    so_far = piece.text, named(piece.source)
                    yield so_far
            except GatewayError:
                yield so_far
                raise

    begun = gr.on(
        [view.button.click, view.question.submit],
        begin,
        inputs=[view.question],
        outputs=[view.asked, *view.asking, view.answer, source],
        api_visibility="private",
        preprocess=False,
        concurrency_limit=None,
        show_progress="hidden",
    )
    asked = begun.success(
        ask,
        inputs=[client, picture, view.asked],
        outputs=[view.answer, source],
        api_name="ask",
        preprocess=False,  # what the browser sends is checked here, so that each refusal is a sentence
        concurrency_limit=AT_ONCE,
        show_progress="hidden",
    )
    view.stop.click(None, cancels=[asked], api_visibility="private")
    return asked


def checked(question: object) -> str:
    """The question as it goes to the model; gr.Error where it is none."""
    if not isinstance(question, str) or not question.strip():
        raise gr.Error("Type a question first.", print_exception=False)
    if len(question) > LONGEST_QUESTION:
        raise gr.Error(f"The question is longer than {LONGEST_QUESTION} characters.", print_exception=False)
    return question.strip()


def rested() -> tuple[Any, ...]:
    """``AskView.asking`` where no answer comes in."""
    return gr.Textbox(interactive=True), gr.Button(interactive=True), gr.Button(visible=False)


def named(source: dict[str, str]) -> str:
    """``amy@0123456789abcdef over base 0123456789abcdef``."""
    if not source:
        return ""
    return f"{source.get('client')}@{source.get('version')} over base {source.get('base')}"
