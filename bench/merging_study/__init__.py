"""The parts of ``bench/merging.py``."""
