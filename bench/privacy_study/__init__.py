"""Parts of bench/privacy.py."""
