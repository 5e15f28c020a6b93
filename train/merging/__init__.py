"""Merging of adapters and of models: pure functions, one module's tensors at a time."""
