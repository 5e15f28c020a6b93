"""``python -m ui``: serves the page until it is interrupted."""

import os
import signal
import sys
import tempfile
from contextlib import suppress
from typing import Annotated

from pydantic import Field, HttpUrl, ValidationError
from pydantic_settings import BaseSettings, CliApp, SettingsConfigDict


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
    """Serves the page and blocks; nothing is looked up or reported outside."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="fedtailor-ui-") as private:  # whatever Gradio writes, only this user sees
        os.environ |= {"GRADIO_TEMP_DIR": private, "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"}
        os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = str(10**9)  # it makes statistics after so many events
        from ui.gateway import Gateway
        from ui.server import gated, run  # imports Gradio, which reads the environment then

        def announce(url: str) -> None:
            print(f"FedTailor UI on {url} (gateway {settings.gateway})", flush=True)

        app = gated(Gateway(str(settings.gateway).rstrip("/"), settings.timeout_s), settings.max_upload_mb)
        with suppress(KeyboardInterrupt):
            run(app, settings.host, settings.port, announce)


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
