"""One run of ``train/fed.py``: its configuration, its folder, its results."""
