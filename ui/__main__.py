"""``python -m ui``: serves the page until it is interrupted."""

import os
import signal
import sys
import tempfile
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, HttpUrl, ValidationError
from pydantic_settings import BaseSettings, CliApp, SettingsConfigDict

if TYPE_CHECKING:
    import gradio as gr


class Settings(BaseSettings):
    """The page where a person questions their own model; it needs a running gateway."""

    model_config = SettingsConfigDict(
        env_prefix="FEDTAILOR_UI_",
        cli_prog_name="python -m ui",
        cli_kebab_case=True,
        cli_hide_none_type=True,
        extra="forbid",
        frozen=True,
    )

    gateway: HttpUrl = Field(HttpUrl("http://127.0.0.1:8000"), description="where the gateway listens")
    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for every interface")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        7860, description="port to listen on; 0 takes the first free one from 7860 on"
    )
    timeout_s: Annotated[float, Field(gt=0)] = Field(60.0, description="longest wait for a piece of an answer, seconds")
    max_upload_mb: Annotated[int, Field(ge=1)] = Field(10, description="largest picture file, megabytes")

    def cli_cmd(self) -> None:
        """Serves until interrupted."""
        serve(self)


def serve(settings: Settings) -> None:
    """Launches the page and blocks; nothing is looked up or reported outside, and no upload outlives the process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="fedtailor-ui-") as uploads:  # only this user may look into it
        os.environ |= {"GRADIO_TEMP_DIR": uploads, "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"}
        page, url = launch(settings)
        print(f"FedTailor UI on {url.rstrip('/')} (gateway {settings.gateway})", flush=True)
        page.block_thread()


def launch(settings: Settings) -> "tuple[gr.Blocks, str]":
    """The running page and its address; SystemExit with a sentence where it cannot listen there."""
    import gradio as gr  # reads the environment when imported

    from ui.app import CSS, build
    from ui.gateway import Gateway

    page = build(Gateway(str(settings.gateway).rstrip("/"), settings.timeout_s))
    page.queue(max_size=256)
    # Plain names of fonts are taken from the person's machine; Gradio's own themes fetch theirs.
    theme = gr.themes.Soft(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    try:
        _, url, _ = page.launch(
            server_name=settings.host,
            server_port=settings.port or None,
            theme=theme,
            css=CSS,
            max_file_size=f"{settings.max_upload_mb}mb",
            footer_links=[],
            run_history=False,  # it keeps every input in the browser, the key among them
            enable_monitoring=False,
            ssr_mode=False,
            share=False,
            quiet=True,
            prevent_thread_lock=True,
        )
    except OSError as error:
        raise SystemExit(f"error: cannot listen on port {settings.port} of {settings.host}: is it taken?") from error
    return page, url


def main() -> int:
    """Parses the command line; ``--help`` documents every option."""
    try:
        CliApp.run(Settings)
    except ValidationError as error:
        first = error.errors()[0]
        option = "-".join(str(part) for part in first["loc"]).replace("_", "-")
        print(f"error: --{option} {first['input']!r}: {first['msg']}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
