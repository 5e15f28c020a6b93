"""What every test shares: no network, one thread, and a federation small enough to run in seconds."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

# one gateway with its engine, and each base once, for the whole suite
pytest_plugins = ["tests.serve.fixtures", "tests.train.fixtures"]
