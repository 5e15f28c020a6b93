"""What every test shares: no network, one thread unless OMP_NUM_THREADS says otherwise, and small federations."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

# one gateway with its engine, and each base once, for the whole suite
pytest_plugins = ["tests.serve.fixtures", "tests.train.fixtures"]


def pytest_runtest_setup() -> None:
    """Every test has the same threads, whatever a run or a gateway in this process set before it."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
