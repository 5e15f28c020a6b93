"""Sort a picture into the client's own classes; the most probable ones, and the prompts that the first one rests on."""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from ui.ask import AT_ONCE, named
from ui.gateway import Gateway
from ui.picture import sent
from ui.session import Sessions
from ui.uploads import Uploads

TOP_K = 5
EXPERTS = 10


@dataclass(frozen=True)
class ClassifyView:
    """The widgets of the view; ``group`` is shown for clients whose model sorts pictures."""

    group: gr.Group
    button: gr.Button
    classes: gr.Label
    experts: gr.Label


def draw() -> ClassifyView:
    """Lays the view out where it is called."""
    with gr.Group(visible=False) as group:
        button = gr.Button("Classify", variant="primary")
        classes = gr.Label(label="Classes", num_top_classes=TOP_K)
        experts = gr.Label(label="Prompts behind the first class", num_top_classes=EXPERTS, visible=False)
    return ClassifyView(group, button, classes, experts)


def wire(
    view: ClassifyView,
    gateway: Gateway,
    sessions: Sessions,
    uploads: Uploads,
    client: gr.Dropdown,
    picture: gr.Image,
    source: gr.Textbox,
) -> Any:
    """Connects the view to the gateway; returns the event, so that logging out can cancel it."""

    async def classify(name: object, upload: object, request: gr.Request) -> tuple[dict[str, float], str, gr.Label]:
        who, name = sessions.permitted(request, name)
        png = await sent(uploads.opened(who, upload))
        if png is None:
            raise gr.Error("Choose a picture first.", print_exception=False)
        with sessions.spoken(who):
            found = await gateway.classify(who.key, name, png, TOP_K)
        return dict(found.classes), named(found.source), gr.Label(dict(found.experts), visible=bool(found.experts))

    return view.button.click(
        classify,
        inputs=[client, picture],
        outputs=[view.classes, source, view.experts],
        api_name="classify",
        preprocess=False,
        concurrency_limit=AT_ONCE,
        show_progress="hidden",
    )
