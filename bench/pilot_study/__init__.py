"""Parts of bench/pilot.py."""
