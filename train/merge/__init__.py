"""``python -m train.merge``: files in, a merge, files out."""
