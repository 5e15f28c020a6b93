"""The gateway's own folder, and the copies in it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from adapters_store.paths import PROJECT_ROOT
from serve.engine.private_folder import LOCK, PREFIX, PrivateFolder, sweep
from serve.versions.copies import Copies
from tests.serve.artefacts import lora_files

KILLED = """
import os, signal
from serve.engine.private_folder import PrivateFolder
print(PrivateFolder().path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_is_for_its_owner_only_and_goes_with_it() -> None:
    private = PrivateFolder()
    assert private.path.stat().st_mode & 0o777 == 0o700
    private.remove()
    assert not private.path.exists()


def test_what_a_killed_gateway_left_is_removed_and_what_a_living_one_uses_is_not() -> None:
    living = PrivateFolder()
    try:
        done = subprocess.run(
            [sys.executable, "-c", KILLED], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
        )
        left = Path(done.stdout.strip())
        assert left.is_dir()
        sweep(left.parent)
        assert not left.exists()
        assert living.path.is_dir()
    finally:
        living.remove()


@pytest.mark.parametrize("kind", ["being made", "a link"])
def test_what_may_be_somebodys_is_left_alone(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / f"{PREFIX}x"
    if kind == "a link":
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / LOCK).touch()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
    sweep(tmp_path)
    assert folder.exists()
    if kind == "being made":
        os.utime(folder, (time.time() - 1000,) * 2)
        sweep(tmp_path)
        assert not folder.exists()


def test_the_engine_reads_a_configuration_of_ours_and_the_weights_that_were_verified(tmp_path: Path) -> None:
    files = lora_files(1)
    config = json.loads(files["adapter_config.json"])
    hostile = {"target_modules": "(a+)+$", "modules_to_save": None, "auto_mapping": {"a": [[]]}, "use_rslora": True}
    folder = Copies(tmp_path / "copies").make(
        "ann@1", files | {"adapter_config.json": json.dumps(config | hostile).encode()}
    )
    said = json.loads((folder / "adapter_config.json").read_text())
    projections = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    numbers = {"r": config["r"], "lora_alpha": config["lora_alpha"], "use_rslora": True}
    assert said == {"peft_type": "LORA", "bias": "none", "target_modules": projections, **numbers}
    assert (folder / "adapter_model.safetensors").read_bytes() == files["adapter_model.safetensors"]
    assert len(load_file(folder / "adapter_model.safetensors")) > 0


def test_a_copy_is_replaced_as_a_whole_and_removed(tmp_path: Path) -> None:
    copies = Copies(tmp_path / "copies")
    copies.make("ann@1", {"prompt.safetensors": b"a", "connector.safetensors": b"b"})
    folder = copies.make("ann@1", {"prompt.safetensors": b"c"})
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"prompt.safetensors": b"c"}
    copies.remove("ann@1")
    assert not folder.exists()
