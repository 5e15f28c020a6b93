"""Differential privacy of what clients upload: the private step, what a run of them costs."""
