"""The two bases on which the paths are timed: a ViT-B/16 with random weights, and the embedded tiny one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from bench.prompt_study.loop import load
from bench.prompt_study.settings import run_config
from train.models.clip import ResidentClip
from train.run.config import RunConfig

DATA: Final[dict[str, Any]] = {
    "clients": 4,
    "partition": "pathological",
    "classes_per_client": 10,
    "styles": ["photo"],
    "colour": "mixed",
    "few_shot": 16,
    "val_per_client": 1,
    "test_per_client": 1,
}
"""Ten classes each of forty, sixteen images a class."""
EPOCHS: Final = {"vit-b-16": 1, "tiny": 5}
"""Local epochs of the timed round; one for the large base, whose images the reference encodes in every step."""


@contextmanager
def sized(size: str, **data: Any) -> Iterator[tuple[RunConfig, ResidentClip]]:
    """The run's configuration and its loaded base; ``data`` changes fields of the data section."""
    method = {"experts": 3, "prompt": {"length": 16}}
    given, client = {**DATA, **data}, {"local_epochs": EPOCHS[size]}
    if size == "tiny":
        config = run_config("pfedmoap_scenes", method=method, data=given, client=client)
        yield config, load(config)
        return
    with TemporaryDirectory() as folder:
        base = {"path": "ViT-B-16", "pretrained": str(random_weights("ViT-B-16", 0, Path(folder)))}
        config = run_config("pfedmoap_scenes", method=method, base=base, data=given, client=client)
        yield config, load(config)


def random_weights(name: str, seed: int, folder: Path) -> Path:
    """A file with the weights that open_clip's model of this name starts from under this seed."""
    import open_clip
    from safetensors.torch import save_model

    torch.manual_seed(seed)
    path = folder / "random.safetensors"
    save_model(open_clip.create_model(name), str(path))
    return path
