"""The page: a door (the key), and behind it the person's own models."""

from typing import Any

import gradio as gr

from ui import ask, classify
from ui.gateway import Described, Gateway
from ui.session import LASTS_S, Session, permitted, spoken

TITLE = "FedTailor"
WELCOME = "# FedTailor\nAsk the model that was tailored to you. Your key says which models are yours."
CSS = """
.door { max-width: 28rem; margin: 0 auto }
.who { align-items: center }
.who > button { flex: 0 0 auto }
.picture img { width: 100%; height: 100%; object-fit: contain }
"""
CACHE_S = (300, 1800)  # uploads are deleted half an hour after they came; checked every five minutes


def build(gateway: Gateway) -> gr.Blocks:
    """The whole page over that gateway, ready for ``launch``."""
    page: gr.Blocks
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=CACHE_S) as page:
        session = gr.State(None, time_to_live=LASTS_S)
        gr.Markdown(WELCOME)
        with gr.Column(visible=True, elem_classes="door") as door:
            key = gr.Textbox(label="Key", type="password", max_length=512, autofocus=True)
            enter = gr.Button("Log in", variant="primary")
        with gr.Column(visible=False) as room:
            with gr.Row(elem_classes="who"):
                client = gr.Dropdown(show_label=False, container=False, choices=[], interactive=True, min_width=120)
                about = gr.Markdown(container=False)
                leave = gr.Button("Log out", size="sm", min_width=80)
            with gr.Row():
                with gr.Column():
                    picture = gr.Image(
                        label="Picture",
                        type="filepath",
                        sources=["upload", "clipboard"],
                        height=380,
                        elem_classes="picture",
                    )
                with gr.Column():
                    asking = ask.draw()
                    sorting = classify.draw()
                    source = gr.Textbox(label="Answered by", interactive=False)
        views = [asking.group, sorting.group]
        results = [picture, asking.question, asking.answer, sorting.classes, sorting.experts, source]

        async def login(given: str | None) -> tuple[Any, ...]:
            if not given or not given.strip():
                raise gr.Error("Type your key first.", print_exception=False)
            with spoken():
                clients = await gateway.login(given.strip())
            if not clients:
                raise gr.Error("Your key is valid but allows no client yet.", print_exception=False)
            choices = gr.Dropdown(choices=clients, value=clients[0])
            opened = gr.Column(visible=False), gr.Column(visible=True)
            return Session(given.strip(), tuple(clients)), "", choices, *opened

        async def choose(who: Session | None, name: object) -> tuple[Any, ...]:
            who, name = permitted(who, name)
            with spoken():
                found = await gateway.describe(who.key, name)
            shown = gr.Group(visible=found.family == "mllm"), gr.Group(visible=found.family == "clip")
            return sentence(found), *shown, *_empty(results[2:])

        def logout() -> tuple[Any, ...]:
            closed = gr.Column(visible=True), gr.Column(visible=False)
            return None, gr.Dropdown(choices=[], value=None), *closed, *_empty(results)

        entering = gr.on(
            [enter.click, key.submit],
            login,
            inputs=[key],
            outputs=[session, key, client, door, room],
            api_name="login",
            preprocess=False,
            show_progress="hidden",  # what it shows on an error would cover the field
            concurrency_limit=None,
        )
        running = [
            ask.wire(asking, gateway, session, client, picture, source),
            classify.wire(sorting, gateway, session, client, picture, source),
        ]
        chosen: dict[str, Any] = {
            "inputs": [session, client],
            "outputs": [about, *views, *results[2:]],
            "preprocess": False,
            "show_progress": "hidden",
        }
        entering.success(choose, **chosen, api_name="entered", api_visibility="private", concurrency_limit=None)
        client.input(choose, **chosen, api_name="choose", cancels=running, concurrency_limit=None)
        leaving = [session, client, door, room, *results]
        leave.click(logout, outputs=leaving, api_name="logout", cancels=running, show_progress="hidden")
    return page


def sentence(found: Described) -> str:
    """What the person is told of the chosen model."""
    if found.version is None:
        return f"**{found.id}** has no version that answers yet."
    does = "answers questions" if found.family == "mllm" else "sorts pictures into its classes"
    return f"**{found.id}** {does}. It is version `{found.version}`"


def _empty(components: list[Any]) -> list[None]:
    return [None] * len(components)
