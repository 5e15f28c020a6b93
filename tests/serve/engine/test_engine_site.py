"""What the engine gets of ours: each part by itself. That the real engine uses them is seen in tests/hostile."""

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
import torch

from serve.engine.command import SITE, EnginePlan, engine_environment
from serve.engine.site.fedtailor_engine import tell
from serve.settings import Settings

SENTINEL = 3
RACE = """
import gc, io, sys, threading
import numpy as np
from vllm.multimodal.media.image import ImageEmbeddingMediaIO
from vllm.plugins import load_general_plugins

buffer = io.BytesIO()
np.save(buffer, np.zeros((4, 4), np.float32))
reader = ImageEmbeddingMediaIO()

gc.callbacks.append(lambda *_: [None for _ in range(3)])  # Python code in a collection: other threads get a turn in it

def raced():
    errors = []

    def work():
        for _ in range(1500):
            try:
                reader.load_bytes(buffer.getvalue())
            except SystemError as error:
                errors.append(error)

    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    sys.setswitchinterval(0.005)
    gc.set_threshold(700)
    return len(errors)

as_it_is = raced()
load_general_plugins()
print(as_it_is, raced())
"""


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_says_so_and_leaves_the_others_as_they_are(bad: float) -> None:
    logits = torch.randn(4, 10, generator=torch.Generator().manual_seed(0))
    logits[3, 5] = float("-inf")  # how vLLM forbids a token
    expected = logits.clone()
    logits[1, 7] = bad
    told = tell(logits, SENTINEL)
    assert told.argmax(-1).tolist()[1] == SENTINEL
    assert told[1].softmax(-1)[SENTINEL] == 1
    expected[:, SENTINEL] = float("-inf")  # no answer may hold it
    for row in (0, 2, 3):
        assert torch.equal(told[row], expected[row])


def test_a_row_of_minus_infinity_alone_is_not_finite() -> None:
    assert tell(torch.full((1, 10), float("-inf")), SENTINEL).argmax(-1).item() == SENTINEL


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="later interpreters keep the depth for each thread")
def test_vllm_parses_soft_tokens_one_at_a_time(tmp_path: Path) -> None:
    environment = engine_environment(EnginePlan(tmp_path, tmp_path, "key", SENTINEL), Settings())
    said = subprocess.run([sys.executable, "-c", RACE], env=environment, capture_output=True, text=True, check=True)
    as_it_is, installed = map(int, said.stdout.split()[-2:])
    assert as_it_is > 0, "the race that the lock is for does not show here"
    assert installed == 0


def test_vllm_finds_the_plug_in_in_that_folder_only() -> None:
    def plugins(path: list[str]) -> list[str]:
        entries = [entry for d in distributions(path=path) for entry in d.entry_points]
        return [entry.value for entry in entries if entry.group == "vllm.general_plugins"]

    assert plugins([str(SITE)]) == ["fedtailor_engine:install"]
    assert "fedtailor_engine:install" not in plugins([p for p in sys.path if Path(p) != SITE])
