"""Bytes of a store: written so that a crash cannot halve them, read within bounds."""
