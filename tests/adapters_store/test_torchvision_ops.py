"""torchvision and transformers import beside whatever torch is here, in processes of the project and in others."""

import subprocess
import sys


def run(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)


def test_torchvision_imports_after_adapters_store() -> None:
    done = run("import adapters_store, torchvision; from torchvision.ops.misc import FrozenBatchNorm2d")
    assert done.returncode == 0, done.stderr


def test_a_llava_imports_after_adapters_store() -> None:
    done = run("import adapters_store; from transformers import LlavaForConditionalGeneration")
    assert done.returncode == 0, done.stderr


def test_importing_adapters_store_loads_neither() -> None:
    done = run("import sys, adapters_store; print(sorted({'torch', 'torchvision', 'transformers'} & set(sys.modules)))")
    assert done.stdout.strip() == "[]", done.stderr


def test_the_operators_are_only_declared_where_they_are_missing() -> None:
    """Where the native library loads it defines them itself; declaring them again would fail the import."""
    code = (
        "import adapters_store, torchvision, torch\n"
        "from adapters_store import torchvision_ops as ops\n"
        "sound = ops._native_libraries_load('torchvision', '_C*.so')\n"
        "assert sound != bool(ops._kept), (sound, ops._kept)\n"
        "torch.ops.torchvision.nms"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_every_process_of_the_environment_is_armed() -> None:
    """`accelerate launch` imports torchvision before it runs anything of ours."""
    done = run("import torchvision")
    assert done.returncode == 0, done.stderr
