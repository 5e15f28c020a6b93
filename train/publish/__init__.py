"""Versions for the store: of a run, or of a folder from elsewhere (``python -m train.publish``)."""
