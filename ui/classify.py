"""Sort a picture into the client's own classes; the most probable ones with their probabilities."""

import asyncio
from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.ask import AT_ONCE, named
from ui.gateway import Gateway
from ui.picture import as_png
from ui.session import Session, permitted, spoken

TOP_K = 5


@dataclass(frozen=True)
class ClassifyView:
    """The widgets of the view; ``group`` is shown for clients whose model sorts pictures."""

    group: gr.Group
    button: gr.Button
    classes: gr.Label


def draw() -> ClassifyView:
    """Lays the view out where it is called."""
    with gr.Group(visible=False) as group:
        button = gr.Button("Classify", variant="primary")
        classes = gr.Label(label="Classes", num_top_classes=TOP_K)
    return ClassifyView(group, button, classes)


def wire(
    view: ClassifyView, gateway: Gateway, session: gr.State, client: gr.Dropdown, picture: gr.Image, source: gr.Textbox
) -> Any:
    """Connects the view to the gateway; returns the event, so that logging out can cancel it."""

    async def classify(
        who: Session | None, name: object, upload: dict[str, Any] | None
    ) -> tuple[dict[str, float], str]:
        who, name = permitted(who, name)
        png = await asyncio.to_thread(as_png, upload)
        if png is None:
            raise gr.Error("Choose a picture first.", print_exception=False)
        with spoken():
            found = await gateway.classify(who.key, name, png, TOP_K)
        return dict(found.classes), named(found.source)

    return view.button.click(
        classify,
        inputs=[session, client, picture],
        outputs=[view.classes, source],
        api_name="classify",
        preprocess=False,
        concurrency_limit=AT_ONCE,
        show_progress="hidden",
    )
