"""The tests run with the kernels and the threads that the environment asks for, and with no others."""

import os
import subprocess
import sys

import pytest
import torch

from tests.floats import check_close, rounding

pytestmark = pytest.mark.numeric


def test_threads_and_kernels_are_the_environments() -> None:
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
    asked = os.environ.get("ATEN_CPU_CAPABILITY")
    assert asked in (None, torch.backends.cpu.get_cpu_capability().lower())


def test_what_a_test_sets_is_its_own() -> None:
    torch.set_num_threads(torch.get_num_threads() + 1)


def test_the_next_one_has_the_environments_again() -> None:
    test_threads_and_kernels_are_the_environments()


def test_the_processors_kinds_begin_with_the_plainest_and_end_with_the_chosen() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    said = subprocess.run(
        [sys.executable, "-m", "tests.kernels"], capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    assert said[0] == "default"
    assert os.environ.get("ATEN_CPU_CAPABILITY", "default") in said


@pytest.mark.parametrize("broken", [lambda x: -x, lambda x: 1.001 * x, lambda x: x.flip(0), lambda x: x.bfloat16()])
def test_a_bound_tells_what_is_wrong_from_what_is_rounded(broken: object) -> None:
    """Sign, scale, order, and a type of eight bits; a sum in another order passes, and what is no number does not."""
    values = torch.randn(64, 4096, generator=torch.Generator().manual_seed(0))
    whole, parts = values.double().sum(1), values.view(64, 64, 64).sum(1).sum(1)
    check_close(parts, whole, 4096)
    assert rounding(4096) < 1e-4
    for wrong in (broken(whole), whole * torch.nan):  # type: ignore[operator]
        with pytest.raises(AssertionError):
            check_close(wrong, whole, 4096)
