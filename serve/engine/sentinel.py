"""The token by which the engine says that an answer's numbers are not finite (site/fedtailor_engine.py)."""

import json
from pathlib import Path
from typing import Any

from serve.errors import GatewayError


class NotFiniteError(GatewayError):
    """503: the version's own numbers overflowed in the middle of an answer; nobody else's are touched by it."""

    def __init__(self, model: str) -> None:
        super().__init__(503, f"{model} cannot answer this: its numbers are not finite", retry_after_s=60)


def sentinel_token(base: Path) -> int:
    """Id of the base's image placeholder, which stands in prompts only; ValueError where the base has none."""
    config = json.loads((base / "config.json").read_text())
    found = config.get("image_token_index", config.get("image_token_id"))
    if not isinstance(found, int):
        raise ValueError(f"base {str(base)!r} names no image token in config.json: only LLaVA-like bases are served")
    return found


def check_finite(model: str, answer: dict[str, Any], sentinel: int) -> None:
    """NotFiniteError where a choice of vLLM's answer, or of a chunk of one, stopped at the sentinel."""
    if any(choice.get("stop_reason") == sentinel for choice in answer.get("choices", ())):
        raise NotFiniteError(model)
