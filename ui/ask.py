"""Ask a question about a picture, or without one; the answer streams in with the version that gives it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.gateway import Gateway, GatewayError
from ui.picture import as_png
from ui.session import Session, permitted, shown

AT_ONCE = 16  # answers streaming at the same time; the gateway batches them
LONGEST_QUESTION = 4000  # characters


@dataclass(frozen=True)
class AskView:
    """The widgets of the view; ``group`` is shown for clients whose model answers questions."""

    group: gr.Group
    question: gr.Textbox
    button: gr.Button
    answer: gr.Textbox


def draw() -> AskView:
    """Lays the view out where it is called."""
    with gr.Group(visible=False) as group:
        question = gr.Textbox(label="Question", placeholder="What is in the picture?", max_length=LONGEST_QUESTION)
        button = gr.Button("Ask", variant="primary")
        answer = gr.Textbox(label="Answer", lines=2, interactive=False, buttons=["copy"])
    return AskView(group, question, button, answer)


def wire(
    view: AskView, gateway: Gateway, session: gr.State, client: gr.Dropdown, picture: gr.Image, source: gr.Textbox
) -> Any:
    """Connects the view to the gateway; returns the event, so that logging out can cancel it."""

    async def ask(
        who: Session | None, name: object, upload: dict[str, Any] | None, question: str | None
    ) -> AsyncIterator[tuple[str, str]]:
        who, name = permitted(who, name)
        if not question or not question.strip():
            raise gr.Error("Type a question first.", print_exception=False)
        if len(question) > LONGEST_QUESTION:
            raise gr.Error(f"The question is longer than {LONGEST_QUESTION} characters.", print_exception=False)
        png = await asyncio.to_thread(as_png, upload)
        so_far = "", ""
        yield "", "…"
        try:
            async for piece in gateway.ask(who.key, name, question.strip(), png):
                so_far = piece.text, named(piece.source)
                yield so_far
        except GatewayError as error:
            yield so_far
            raise shown(error) from error

    return gr.on(
        [view.button.click, view.question.submit],
        ask,
        inputs=[session, client, picture, view.question],
        outputs=[view.answer, source],
        api_name="ask",
        preprocess=False,  # what the browser sends is checked here, so that each refusal is a sentence
        concurrency_limit=AT_ONCE,
        trigger_mode="once",
        show_progress="hidden",
    )


def named(source: dict[str, str]) -> str:
    """``amy@0123456789abcdef over base 0123456789abcdef``."""
    if not source:
        return ""
    return f"{source.get('client')}@{source.get('version')} over base {source.get('base')}"
