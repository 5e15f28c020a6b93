"""What ``python -m train.merge`` is made of: files in, a merge, files out."""
