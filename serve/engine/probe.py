"""Trying an adapter in the engine: many tokens at once, whose numbers all have to be finite.

One token is asked for after all of them: it attends to each, and 0 times a number that is not finite is not finite.
"""

import itertools
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from serve.engine.client import EngineClient
from serve.engine.sentinel import NotFiniteError

TOKENS = 256  # of the probe; a few milliseconds more than one token takes
SELF_TEST = "fedtailor-self-test"  # no client id has such a name's length of life: loaded, tried, unloaded


class Probe:
    """Texts made of the base's whole vocabulary, evenly."""

    def __init__(self, base: Path) -> None:
        added = {token["id"] for token in json.loads((base / "tokenizer.json").read_text())["added_tokens"]}
        text = json.loads((base / "config.json").read_text())["text_config"]
        plain = [token for token in range(text["vocab_size"]) if token not in added]
        count = min(TOKENS, len(plain), text["max_position_embeddings"] // 2)
        self.tokens = [plain[i * len(plain) // count] for i in range(count)]
        self._numbers = itertools.count()

    async def passes(self, client: EngineClient, name: str) -> bool:
        """Whether all numbers of the adapter of that name are finite over the probe, computed anew."""
        try:
            await client.complete(name, self.tokens, salt=f"probe {next(self._numbers)}")
        except NotFiniteError:
            return False
        return True


def write_overflowing(zero: Path, folder: Path) -> Path:
    """Writes an adapter of the zero adapter's shape into ``folder`` whose product is beyond every float; returns it."""
    folder.mkdir()
    weights = load_file(zero / "adapter_model.safetensors")
    most = torch.finfo(torch.float32).max
    save_file({name: torch.full_like(w, most) for name, w in weights.items()}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_bytes((zero / "adapter_config.json").read_bytes())
    return folder
