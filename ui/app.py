"""The page: a door (the key), and behind it the person's own models."""

import re
from dataclasses import replace
from typing import Any

import gradio as gr

from ui import ask, classify
from ui.gateway import Described, Gateway, GatewayError
from ui.page import Page
from ui.session import Sessions
from ui.uploads import Uploads

TITLE = "FedTailor"
WELCOME = "# FedTailor\nAsk the model that was tailored to you. Your key says which models are yours."
CSS = """
.door { max-width: 28rem; margin: 0 auto }
.who { align-items: center }
.who > button { flex: 0 0 auto }
.picture img { width: 100%; height: 100%; object-fit: contain }
"""
DOES = {"mllm": "answers questions", "clip": "sorts pictures into its classes"}  # in the order of the views
ENTERING = 16  # log-ins at once


def build(gateway: Gateway, sessions: Sessions, uploads: Uploads) -> Page:
    """The whole page over that gateway, ready to be mounted."""
    page = Page(title=TITLE, analytics_enabled=False)
    with page:
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

        async def login(given: object, request: gr.Request) -> tuple[Any, ...]:
            if not isinstance(given, str) or not given.strip():
                raise gr.Error("Type your key first.", print_exception=False)
            with sessions.spoken():
                clients = await gateway.login(given.strip())
            if not clients:
                raise gr.Error("Your key is valid but allows no client yet.", print_exception=False)
            sessions.open(request.session_hash, given.strip(), clients)
            choices = gr.Dropdown(choices=clients, value=clients[0])
            return "", choices, gr.Column(visible=False), gr.Column(visible=True)

        async def choose(name: object, request: gr.Request) -> tuple[Any, ...]:
            who, name = sessions.permitted(request, name)
            with sessions.spoken(who):
                found = await gateway.describe(who.key, name)
            shown = [gr.Group(visible=family in found.versions) for family in DOES]
            return sentence(found), *shown, *_empty(results[2:])

        async def follow(family: str, name: object, said: object, request: gr.Request) -> Any:
            who = sessions.of(request)
            answered = re.match(r"(\S+)@(\w+) over base ", said) if isinstance(said, str) else None
            if who is None or answered is None or answered[1] != name or name not in who.clients:
                return gr.skip()
            try:
                found = await gateway.describe(who.key, name)
                return sentence(replace(found, versions=found.versions | {family: answered[2]}))
            except GatewayError:
                return gr.skip()

        async def rest(name: object, said: object, request: gr.Request) -> tuple[Any, ...]:
            return *ask.rested(), await follow("mllm", name, said, request)

        async def sorted_over(name: object, said: object, request: gr.Request) -> Any:
            return await follow("clip", name, said, request)

        async def clear() -> tuple[Any, ...]:
            return *ask.rested(), gr.Textbox(None, visible=False), None, None, gr.Label(None, visible=False), None

        async def logout(request: gr.Request) -> tuple[Any, ...]:
            sessions.close(request.session_hash)
            uploads.forget_of(request.session_hash)
            closed = gr.Column(visible=True), gr.Column(visible=False)
            return gr.Dropdown(choices=[], value=None), *closed, *_empty(results)

        entering = gr.on(
            [enter.click, key.submit],
            login,
            inputs=[key],
            outputs=[key, client, door, room],
            api_name="login",
            preprocess=False,
            show_progress="hidden",  # what it shows on an error would cover the field
            concurrency_limit=ENTERING,
        )
        parts = gateway, sessions, uploads, client, picture, source
        asked, sorted_ = running = [ask.wire(asking, *parts), classify.wire(sorting, *parts)]
        quiet: dict[str, Any] = {"preprocess": False, "show_progress": "hidden", "concurrency_limit": None}
        private: dict[str, Any] = quiet | {"api_visibility": "private"}
        chosen: dict[str, Any] = {"inputs": [client], "outputs": [about, *views, *results[2:]]}
        cleared = [*asking.asking, asking.asked, *results[2:]]
        entering.success(choose, **chosen, **private, api_name="entered")
        replacing = [picture.upload, picture.clear]
        # Before what follows on the same clicks: it would end what is asked for as soon as that is done.
        gr.on([client.input, leave.click, *replacing], None, cancels=running, api_visibility="private")
        choosing = client.input(choose, **chosen, **quiet, api_name="choose")
        for ended in (choosing.success, choosing.failure):
            ended(clear, outputs=cleared, **private)
        gr.on(replacing, clear, outputs=cleared, **private)
        # One event after another: Gradio's page may lose the end of one that begins while another ends.
        for over in (asked.success, asked.failure):  # when it was cancelled too
            over(rest, inputs=[client, source], outputs=[*asking.asking, about], **private)
        sorted_.success(sorted_over, inputs=[client, source], outputs=[about], **private)
        left = leave.click(logout, outputs=[client, door, room, *results], api_name="logout", **quiet)
        left.success(clear, outputs=cleared, **private)
    return page


def sentence(found: Described) -> str:
    """What the person is told of the chosen model."""
    does = [(DOES[family], version) for family, version in found.versions.items()]
    if not does:
        return f"**{found.id}** has no version that answers yet."
    if len(does) == 1:
        return f"**{found.id}** {does[0][0]}. It is version `{does[0][1]}`"
    return f"**{found.id}** " + " and ".join(f"{words} (version `{version}`)" for words, version in does)


def _empty(components: list[Any]) -> list[None]:
    return [None] * len(components)
