"""Copies of versions as they were verified, in the gateway's private folder.

Whoever loads a version, or loads it again, reads its copy: what happens to the store meanwhile, and what else an
artefact's own configuration might say to the engine, reaches nobody.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NUMBERS = ("r", "lora_alpha", "use_rslora")  # of a PEFT configuration: all that serving computes with


class Copies:
    """One folder a version, by the version's name, under ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700)

    def make(self, name: str, files: Mapping[str, bytes]) -> Path:
        """The folder with these files, which were verified; PEFT's configuration is reduced to what was understood."""
        folder = self._root / name
        shutil.rmtree(folder, ignore_errors=True)
        for path, data in files.items():
            target = folder / path
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_bytes(_plain_config(data, files[WEIGHTS]) if path == CONFIG else data)
        return folder

    def remove(self, name: str) -> None:
        """Deletes the copy of that version, if there is one."""
        shutil.rmtree(self._root / name, ignore_errors=True)


def _plain_config(config: bytes, weights: bytes) -> bytes:
    said = json.loads(config)
    header = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])  # safetensors: length, JSON, values
    modules = {key.rpartition(".lora_")[0].rpartition(".")[2] for key in header.keys() - {"__metadata__"}}
    plain = {"peft_type": "LORA", "bias": "none", "target_modules": sorted(modules)}
    return json.dumps(plain | {name: said[name] for name in NUMBERS if name in said}).encode()
